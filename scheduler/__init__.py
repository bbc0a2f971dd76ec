"""The scheduler: what keeps every job moving when nobody else does. `main` is one process; any number may run.

**The promise**: plain loops over the database, each step guarded by state and epoch; none needs the broker.

   `sweep`   one cheap read a second says which of the three has anything to do
   `relay`   announces queued jobs that nobody has claimed in time (a lost hint costs seconds)
   `rescue`  takes the jobs of dead workers and wedged runs
   `expire`  ends queued jobs whose time to live is over

**The control plane**: what jobs' ends owe to others, and periodic duties. In the order of a webhook:

1. `postman`     sees in the database which deliveries are due
2. `doorbell`    rings for each: over the broker (`celery_app`, taken by `control_worker`), or on threads of our own
                 (`direct`) where there is none or ringing is in vain
3. `deliver`     makes one attempt, fenced by the delivery's row
4. `payers`      how each kind is paid: webhooks by `batchfleet.outbox.http_sender`, outputs by `batchfleet.objects`
5. `batchfleet.outbox`  takes what came of it: delivered, or when the next attempt is due

Beside them: `shares`, whose turn it is, so that no tenant or receiver keeps the others waiting; `work`, what is under
way when a stop comes; `beat`, which asks for periodic duties; `retention`, the duty that removes what is too old, and
orphans. `control` starts and stops all of it as one, `wiring` makes the parts from the settings. `__main__` is `python
-m scheduler`.
"""
