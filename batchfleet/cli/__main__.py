"""`python -m batchfleet.cli`: the command line where no script is installed."""

import sys

from batchfleet.cli.main import main

if __name__ == "__main__":  # the benchmark's loop processes import this module again
    sys.exit(main())
