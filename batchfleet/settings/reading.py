"""Reads the settings of a process, once, at its start."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError as UnreadableError

from batchfleet.settings.errors import PREFIX, SettingsError
from batchfleet.settings.fields import Settings
from batchfleet.settings.secret_files import SECRETS_VARIABLE


def read_settings() -> Settings:
    """Returns the settings of this process.

    Raises:
        SettingsError: If any is wrong; the message has a line for each, with the variable's name.
    """
    try:
        return Settings()
    except UnreadableError as error:
        raise SettingsError(f"{SECRETS_VARIABLE}: {error}: {error.__cause__}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        raise SettingsError("\n".join(_told(one) for one in wrong)) from None


def _told(wrong: ErrorDetails) -> str:
    """Returns a line about one setting; without its value, which may hold a password."""
    variable = f"{PREFIX}{str(wrong['loc'][0]).upper()}: " if wrong["loc"] else ""
    if wrong["type"] == "finite_number":
        return f"{variable}must be a number"
    return f"{variable}{wrong['msg'].removeprefix('Value error, ')}"
