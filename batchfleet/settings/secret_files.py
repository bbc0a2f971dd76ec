"""Where settings may lie as files of their own: what is secret then appears in no process list and no `inspect`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from batchfleet.settings.errors import PREFIX, SettingsError

SECRETS_VARIABLE: Final = f"{PREFIX}SECRETS_DIR"
_SECRETS_DEFAULT: Final = Path("/run/secrets")


def secrets_folder(environ: Mapping[str, str]) -> Path | None:
    """Returns where secrets lie as files: as named, else where containers have them, if it is there.

    Raises:
        SettingsError: If what is named is no folder.
    """
    named = environ.get(SECRETS_VARIABLE)
    folder = Path(named) if named else _SECRETS_DEFAULT
    if folder.is_dir():
        return folder
    if named:
        raise SettingsError(f"{SECRETS_VARIABLE}: {named} is not a folder")
    return None
