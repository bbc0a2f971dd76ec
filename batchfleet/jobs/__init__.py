"""Stage 1, what was asked: jobs, their states, and the store that is the truth about them."""
