"""The worker: receive ▸ prepare ▸ assemble ▸ execute ▸ settle, each a thread that owns its part.

1. `receive`   pulls hints, claims their jobs             (owns the broker connection)
   `fetch`     reads inputs that lie in callers' objects, beside it; `absence`: how long a store is waited for
2. `prepare`   decodes and tokenises the claimed          (owns nothing: values in, values out)
3. `assemble`  keeps the window, forms the next batch     (owns the window)
4. `execute`   runs passes, isolates culprits             (owns the device and the journal)
   `canary`    runs a few items again alone, to see whether their company mattered
5. `settle`    puts jobs together, writes results, rings  (owns the progress of each job)
   `ends`      a job's row and the bytes of its result; `uploads` takes large ones to the blob store, beside it;
               `report` counts and logs what was settled; `pacing`: when ends are settled and hints are pulled

What they share: `messages` between stages, `active` (the jobs held, and the room that is left), `serving` (the models),
`load` (how this machine runs one best), `learn` (what their passes cost, told to the fleet and by it), `device` (the
name of what they run on), `journal` (what is in the hands of foreign code), `spans` (what traces are told).

Life and death: `__main__` forks the keeper first, `boot` reads the settings, `main` runs the worker that `wiring`
builds. `identity` is a name that lasts and a boot that does not; `namesakes` tells of two of one name. `keeper` is a
process of its own that renews the lease where neither a long pass nor user code that holds the interpreter can starve
it, and that buries this boot when it dies; `lease` is what the worker sees of it. `drain` is the staged stop.
"""
