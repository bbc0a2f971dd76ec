"""The HTTP front: takes jobs, shows them, hands out results. Never runs a model.

The way of a request: `edge` (request id) → Litestar → `routes/` → `bodies`, `query`, `schemas` (what may be said)
→ `newjobs`, `catalog` (pinned and checked) → `submitter` (one writer thread), `lookups` (one reader thread),
`waiters` (long polls) → `views` (job → JSON). Whatever goes wrong becomes a problem in `problems`.

`python -m api` runs one process; any number may share a database and a broker.
"""
