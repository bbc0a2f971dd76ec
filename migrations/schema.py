"""The schema as the code declares it: importing this module imports every table."""

import batchfleet.access.tables
import batchfleet.jobs.sql.tables
import batchfleet.outbox.tables
import batchfleet.profiles.tables  # noqa: F401
from batchfleet.database.metadata import metadata

__all__ = ["metadata"]
