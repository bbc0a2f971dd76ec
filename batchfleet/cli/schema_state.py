"""Where a database's schema stands, compared with this version's migrations."""

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from batchfleet.database.trouble import unusable
from migrations.run import last_additive


@dataclass(frozen=True, slots=True)
class SchemaState:
    """A schema as found.

    Attributes:
        current: Revisions that the database has; none where it was never migrated.
        newest: Revisions of this version.
        missing: Those that an upgrade would apply, in order.
        afterwards: Those of them that are for when no process of the version before runs; this one needs none.
        unknown: Those that this version does not know: a newer one was here.
    """

    current: tuple[str, ...]
    newest: tuple[str, ...]
    missing: tuple[str, ...]
    afterwards: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def status(self) -> str:
        """`current`, `behind`, `newer` (another version migrated it) or `empty`."""
        if self.unknown:
            return "newer"
        if not self.current:
            return "empty"
        return "behind" if len(self.missing) > len(self.afterwards) else "current"


def read_schema(database_url: str) -> SchemaState:
    """Looks at a database; changes nothing.

    Raises:
        StoreUnavailableError: If it cannot be reached.
    """
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    current = _heads(database_url)
    known = [script.revision for script in scripts.walk_revisions()][::-1]
    applied: set[str] = set()
    for head in current:
        if head in known:
            applied |= {script.revision for script in scripts.iterate_revisions(head, "base")}
    missing = tuple(revision for revision in known if revision not in applied)
    return SchemaState(
        current=current,
        newest=tuple(sorted(scripts.get_heads())),
        missing=missing,
        afterwards=tuple(revision for revision in missing if revision > last_additive(scripts)),
        unknown=tuple(revision for revision in current if revision not in known),
    )


def _heads(database_url: str) -> tuple[str, ...]:
    url = sa.make_url(database_url)
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return ()  # connecting would make the file
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            return tuple(sorted(MigrationContext.configure(connection).get_current_heads()))
    except (sa.exc.SQLAlchemyError, OSError) as error:
        raise unusable(getattr(error, "orig", None) or error) from error
    finally:
        engine.dispose()
