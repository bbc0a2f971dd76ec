"""Stage 5, the forward pass: tasks, runtimes and executors.

Ports: `intake` (the edge half of a task), `task` (what a model does), `runtime` (what executes its graph),
`executor` (admit, step, retire). `isolate` runs a batch so that no item pays for another; `select` chooses a
variant for this machine by measurement; `registry` wires names to adapters and is imported by processes only.
"""
