"""The database schema over time, for Alembic; ships in the wheel.

`upgrade(database_url)` is all that the rest needs: it needs no `alembic.ini`, may be run at every start, and by
several processes at once.
"""

from migrations.run import upgrade

__all__ = ["upgrade"]
