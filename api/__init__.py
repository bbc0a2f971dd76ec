"""The HTTP front: takes jobs, shows them, hands out results. Never runs a model.

`python -m api` (`__main__`) runs one process; any number may share a database and a broker. In the order of a request:

1. it comes in
   `server`     uvicorn, with a stop that does not wait for long polls
   `edge`       an id for each request; foreign hosts and pages of other sites are refused
   `observed`   counted, logged and traced
   `app`        Litestar: the routes, and the one handler of errors
2. who asks
   `auth`       key → tenant and roles
   `known`      keys and tenants as they were a moment ago, so that not every request asks the database
3. what is asked (`routes/` has a module for each resource)
   `bodies`, `query`, `negotiate`   bytes, query string and `Accept` → values
   `schemas`, `wording`             what may be said, and what is said of that which may not
   `newjobs`, `newlinks`            a body → a job: model pinned, inputs checked, links allowed
   `catalog`                        the models that there are
4. it is done
   `gate`       refuses submissions while too many jobs are queued
   `submitter`  the one writer: one transaction for all that came while the last one committed
   `lookups`    the one reader, likewise
   `coalesce`, `cached`   how both do it: whoever asks meanwhile shares the next answer, or the last one
   `waiters`    long polls, woken by the ring
   `blobreads`  large results, on threads of their own; `turns` says whose is next
5. it is answered
   `views`, `deliveries`   rows → what clients see
   `respond`    bodies and headers
   `problems`   whatever went wrong → a problem document, with one table from code to status

`parts` is what a process is made of (database, broker, blobs, …), handed in from outside; `services` starts and closes
the working parts over them. `operations` lists the whole surface; `openapi` and `docpage` describe it from there.
"""
