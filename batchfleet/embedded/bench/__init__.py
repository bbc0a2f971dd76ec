"""The benchmark: the fleet against the best loop that one could write without it, in one run.

`spec` says what to measure, `workload` makes texts, lanes and arrivals, `plans`, `loop` and `loop_worker` find and run
the best in-process loop. `generator`, `generator_worker` and `http_connection` are the load generator, a process of
its own; `meter` and `memory` see what it costs the fleet, `histogram` holds latencies. On the `stage` of these the
scenarios run: `bulk` (with `fleet`), `requests`, `idle`, `load`, `mixed`, `overload`; most of them say what was
`served`. `report`, `picture` and `environment` tell of it, `run` does all of it in turns.
"""
