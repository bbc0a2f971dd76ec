"""The worker: receive ▸ prepare ▸ assemble ▸ execute ▸ settle, each a thread that owns its part.

`receive`  pulls hints, claims jobs                     (owns the broker connection)
`prepare`  decodes and tokenises the claimed            (owns nothing: values in, values out)
`assemble` keeps the window, forms the next batch       (owns the window)
`execute`  runs passes, isolates culprits               (owns the device and the journal)
`settle`   reassembles jobs, writes results, rings      (owns the progress of each job)

Beside them: `keeper`, a process of its own that renews the lease where neither a long pass nor user code that
holds the interpreter can starve it, and that buries this boot when it dies; `drain`, the staged stop.
"""
