"""Settings of all processes: environment variables with the prefix `BATCHFLEET_`, validated once at start.

A setting may also lie in a file of its own in the secrets folder, called like its variable in lower case: what is
secret then appears in no process list and no `inspect`. The environment comes first.

Each is documented in `docs/reference/settings.md`; a test holds the page to `fields`.
"""

from batchfleet.settings.errors import EXIT_CONFIG, SettingsError, UnsafeHostError
from batchfleet.settings.fields import Settings
from batchfleet.settings.hosts import check_host, is_loopback, keys_required
from batchfleet.settings.reading import read_settings
from batchfleet.settings.secret_files import secrets_folder
from batchfleet.settings.urls import bucket_of, folder_of

__all__ = [
    "EXIT_CONFIG",
    "Settings",
    "SettingsError",
    "UnsafeHostError",
    "bucket_of",
    "check_host",
    "folder_of",
    "is_loopback",
    "keys_required",
    "read_settings",
    "secrets_folder",
]
