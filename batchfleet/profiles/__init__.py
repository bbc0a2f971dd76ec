"""What the fleet has learned of its models: costs of passes, ceilings of memory, rates of devices.

Reading order: `port` (values, and what a store of them promises), `notes` (what a worker has yet to tell), `reading`
(what of the stored can be), `backlog` (from rates to device-seconds that wait), then the adapters `tables` and `sql`,
and `memory` for tests.
"""
