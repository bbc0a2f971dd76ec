"""`batchfleet worker --tune`: which split of this machine's cores is fastest, measured with the real models.

Read `choose` for what is tried and in which order, `pool` for the processes, `passes` for what one of them runs,
`report` for what people see, `recall` for what was measured before.
"""
