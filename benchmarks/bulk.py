"""`make bench`: the fleet against the best in-process loop. The same as `batchfleet bench`; arguments are passed on.

How to read it: `docs/benchmarks.md`.
"""

import sys

from batchfleet.cli.main import main

if __name__ == "__main__":  # the loop's processes import this module again
    sys.exit(main(["bench", *sys.argv[1:]]))
