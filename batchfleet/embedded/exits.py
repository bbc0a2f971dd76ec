"""Exit codes of the command line. `docs/reference/cli.md` explains each; a test holds the page to this list."""

from enum import IntEnum

from batchfleet.embedded.restart import EXIT_CONFIG


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    """Done; for `up`: stopped when asked, and every part ended by itself."""
    FAILED = 1
    """The work failed; the message says why. For `result` and `submit --wait`: the job did not succeed."""
    USAGE = 2
    """The command line is wrong."""
    ALREADY_RUNNING = 3
    """Another `up` runs on this data folder."""
    NOT_READY = 4
    """A part kept failing before the fleet was ready."""
    KILLED = 5
    """Stopped, but a part had to be killed: it did not end in its time, or a second signal came."""
    PORT_IN_USE = 6
    """The port is taken by another program."""
    NO_MODEL = 7
    """The demo model could not be made, or the model asked for does not exist."""
    NOT_FOUND = 8
    """There is no such job or model."""
    UNREACHABLE = 9
    """No fleet answers at the URL."""
    TIMEOUT = 10
    """The time to wait is over; the work goes on."""
    DENIED = 11
    """The API key is missing, opens nothing, or may not do that."""
    CONFIG = EXIT_CONFIG
    """A setting cannot work; the message names it."""
    INTERRUPTED = 130
    """Ctrl-C before there was anything to drain."""
