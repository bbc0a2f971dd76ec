"""The scheduler: what keeps every job moving when nobody else does.

`relay`  announces queued jobs that nobody has claimed in time (a lost hint costs seconds)
`rescue` takes the jobs of dead workers and wedged runs
`expire` ends queued jobs whose time to live is over

Plain loops over the database, each step guarded by state and epoch: any number of replicas may run, and none
of them depends on the broker.
"""
