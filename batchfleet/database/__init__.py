"""Transactions over SQLite and Postgres: what every store is written against.

Reading order: `statements` (SQL text for both), `transaction` (the port), `sqlite` and `postgres` (the two drivers),
`opening` (from a URL to one of them). Tables belong to the stages that own them; `metadata` gathers them.
"""
