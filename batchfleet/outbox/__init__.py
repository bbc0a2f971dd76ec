"""7 · Who is told: what a job's end owes to others, kept until it is delivered.

A settle (and every other end of a job) writes the debts of its jobs into the `outbox` table in the same transaction;
the scheduler pays them, at least once each: a *webhook* posts the job to its `callback_url`, an *output* writes its
result to its `output_uri`.

Reading order: `delivery` (values), `schedule`, `signature`, `payload` and `sealing` (pure), `port`, then `tables`,
`sql` and `secrets_sql` (the adapter); `sender` (the port), `guard` (pure), `guarded_network` and `http_sender` (how a
webhook leaves the house).
"""
