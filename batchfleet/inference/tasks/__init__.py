"""The tasks that ship with Batchfleet, one module each, with its edge half beside it (`*_intake`)."""
