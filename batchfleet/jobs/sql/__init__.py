"""The job store in a database: SQLite on one machine, Postgres beyond.

Reading order: `tables` (what is stored), then one module per operation, composed by `store`. Transactions and the
two drivers are in `batchfleet.database`.
"""
