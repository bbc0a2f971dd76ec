"""`python -m workers`: forks the keeper first, since nothing that makes threads may be imported before."""

import sys

from workers.boot import boot

sys.exit(boot())
