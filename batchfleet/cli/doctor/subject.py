"""What is checked: the settings of the environment, or of the fleet that runs on the data folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from batchfleet.cli.running import running_environment, running_url, settings_of, up_folder
from batchfleet.settings import Settings, read_settings

_DECISIVE = "BATCHFLEET_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Subject:
    """A fleet as configured.

    Attributes:
        settings: Its settings.
        source: Where they come from, for people.
        environ: The variables that they come from.
        url: Where its API should answer.
    """

    settings: Settings
    source: str
    environ: Mapping[str, str]
    url: str


def find_subject() -> Subject:
    """Returns what to check: where the environment names no database and a fleet runs here, that fleet.

    Raises:
        SettingsError: If a setting cannot work; the message has a line for each.
    """
    running = {} if _DECISIVE in os.environ else running_environment()
    if running:
        return Subject(
            settings_of(running), f"those of the fleet that runs on {up_folder()}", running, running_url() or ""
        )
    settings = read_settings()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104 - compared
    url = os.environ.get("BATCHFLEET_URL") or f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"
    return Subject(settings, "those of the environment", dict(os.environ), url)
