"""The job store in a database: SQLite on one machine, Postgres beyond.

Reading order: `tables` (what is stored), `statements` (SQL text for both), `database` (transactions), `sqlite`
and `postgres` (the two drivers), then one module per operation, composed by `store`.
"""
