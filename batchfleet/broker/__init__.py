"""Stage 2, how it is announced: hints to workers, and the ring to waiters. A doorbell, never the truth."""
