"""The benchmark: the fleet against the best loop that one could write without it, in one run.

`workload` makes the texts, `plans` and `loop` find and run the best in-process loop, `fleet` puts the same texts
through a fleet, `report` says what came out, `run` does all of it in turns.
"""
