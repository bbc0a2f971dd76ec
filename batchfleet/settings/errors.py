"""What is said of settings that cannot be used."""

from typing import Final

from batchfleet.errors import BatchfleetError

EXIT_CONFIG: Final = 78
"""Exit code of a process whose settings cannot be used (EX_CONFIG): a supervisor need not try again."""

PREFIX: Final = "BATCHFLEET_"


class SettingsError(BatchfleetError):
    """A setting cannot be used; the message names the environment variable."""

    code = "settings_invalid"


class UnsafeHostError(SettingsError):
    """The host is open to others, and there are no keys that would keep strangers out."""

    code = "unsafe_host"
