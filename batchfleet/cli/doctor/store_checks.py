"""Checks of the database, and of what it says: schema, clock, workers, keys, tenants."""

import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from batchfleet.access.sql import SqlAccess
from batchfleet.cli.doctor.findings import Finding, fail, ok, skip, warn
from batchfleet.cli.doctor.subject import Subject
from batchfleet.cli.schema_state import read_schema
from batchfleet.database.opening import open_database
from batchfleet.database.sqlite import database_file
from batchfleet.embedded.database import require_usable_database
from batchfleet.errors import StoreUnavailableError
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.states import JobState
from batchfleet.settings import is_loopback, keys_required

SKEW_WARN_S = 2.0
SKEW_FAIL_S = 240.0
"""Receivers of webhooks bear 5 minutes, S3 bears 15."""

_OTHERS = stat.S_IROTH | stat.S_IWOTH
_UPGRADE = "run `batchfleet db upgrade`"


def check_database(subject: Subject) -> Iterator[Finding]:
    """Asks the database for the time, and compares its schema and its clock."""
    url = subject.settings.database_url
    try:
        require_usable_database(url)
    except ValueError as error:
        yield fail("database", f"{url}: {error}", "mend BATCHFLEET_DATABASE_URL")
        return
    if url.startswith("sqlite") and not database_file(url).exists():
        yield fail("database", f"{url}: there is no such file", f"{_UPGRADE}, or mend BATCHFLEET_DATABASE_URL")
        return
    try:
        before, theirs, after = _ask_time(url)
    except StoreUnavailableError as error:
        yield fail("database", f"{url}: {error}", "start it, or mend BATCHFLEET_DATABASE_URL")
        return
    yield ok("database", f"{url} answers in {1000 * (after - before):.1f} ms")
    yield from _schema(url)
    if url.startswith("sqlite"):
        yield from judge_mode(database_file(url))
    if url.startswith("sqlite"):
        yield ok("clock", "SQLite has the clock of this machine")
    else:
        yield judge_skew(theirs - (before + after) / 2)


def judge_mode(file: Path) -> Iterator[Finding]:
    """Says of a database's file whether other users of the machine can read it."""
    mode = stat.S_IMODE(file.stat().st_mode)
    folder = stat.S_IMODE(file.parent.stat().st_mode)
    if mode & _OTHERS and folder & stat.S_IXOTH:
        told = f"{file} can be read by other users (mode {mode:04o}): webhook secrets and inputs lie in it"
        yield warn("database", told, f"chmod 600 {file}*")


def judge_skew(skew_s: float) -> Finding:
    """Returns what a difference between the database's clock and ours means."""
    told = f"the database's clock is {abs(skew_s):.2f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    advice = "let both machines keep time (NTP): deadlines, webhook signatures and links to S3 depend on it"
    if abs(skew_s) >= SKEW_FAIL_S:
        return fail("clock", told, advice)
    return warn("clock", told, advice) if abs(skew_s) >= SKEW_WARN_S else ok("clock", told)


def check_workers(subject: Subject) -> Iterator[Finding]:
    """Counts the live workers, and what waits for them."""
    settings = subject.settings
    store = SqlStore(settings.database_url)
    try:
        leases, depths = store.workers(), store.queue_depths()
    finally:
        store.close()
    live = [lease for lease in leases if lease.heartbeat_age_s <= settings.lease_ttl_s]
    queued = [depth for depth in depths if depth.state is JobState.QUEUED]
    waiting = f"{sum(depth.jobs for depth in queued)} queued jobs"
    if not live:
        told = f"no live worker ({len(leases)} silent); {waiting}"
        yield warn("workers", told, "start one with `batchfleet worker`: jobs are taken, and wait")
        return
    twice = sorted(name for name, count in Counter(lease.name for lease in live).items() if count > 1)
    if twice:
        yield warn("workers", f"more than one live worker is called {', '.join(twice)}", "see BATCHFLEET_WORKER_NAME")
    states = ", ".join(sorted({lease.state.value for lease in live}))
    yield ok("workers", f"{len(live)} live ({states}); {waiting}")
    unserved = sorted({d.model for d in queued if not any(not w.models or d.model in w.models for w in live)})
    if unserved:
        yield warn("workers", f"no live worker serves {', '.join(unserved)}", "see BATCHFLEET_WORKER_MODELS")


def check_keys(subject: Subject) -> Iterator[Finding]:
    """Says who may ask, and whether anybody can."""
    settings = subject.settings
    access = SqlAccess(settings.database_url)
    try:
        usable = [key for key in access.list_keys() if key.usable(time.time())]
    finally:
        access.close()
    count = f"{len(usable)} usable key{'' if len(usable) == 1 else 's'}"
    host = settings.api_host
    if keys_required(host, settings.require_keys):
        if usable:
            yield ok("keys", f"requests need a key; {count}")
        else:
            yield fail("keys", "requests need a key, and there is none that works", "run `batchfleet keys create`")
    elif is_loopback(host):
        yield ok("keys", f"open without keys to this machine only ({host}); {count}")
    else:
        yield fail(
            "keys",
            f"others can reach {host}, and no key is asked for: the API will not start",
            "leave out BATCHFLEET_REQUIRE_KEYS=false, or listen on loopback",
        )


def check_tenants(subject: Subject) -> Iterator[Finding]:
    """Says where callers' objects may lie."""
    settings = subject.settings
    access = SqlAccess(settings.database_url)
    try:
        known = access.list_tenants()
    finally:
        access.close()
    allowed = [tenant.name for tenant in known if tenant.input_prefixes or tenant.output_prefixes]
    if settings.input_prefixes or settings.output_prefixes:
        allowed.append("default (by its settings)")
    if allowed:
        yield ok("tenants", f"{len(known)} known; objects in S3 are allowed to {', '.join(dict.fromkeys(allowed))}")
    else:
        yield skip("tenants", f"{len(known)} known; none may use input_uri or output_uri")


def _ask_time(url: str) -> tuple[float, float, float]:
    database = open_database(url)
    try:
        database.read(lambda tx: tx.now)  # the connection is made here, and not measured
        before = time.time()
        theirs = database.read(lambda tx: tx.now)
        return before, theirs, time.time()
    finally:
        database.close()


def _schema(url: str) -> Iterator[Finding]:
    state = read_schema(url)
    if state.status == "current" and state.afterwards:
        told = f"is this version's but for what comes afterwards ({', '.join(state.afterwards)})"
        yield warn("schema", told, "once no older process runs: batchfleet db upgrade --post")
    elif state.status == "current":
        yield ok("schema", f"is this version's ({', '.join(state.current)})")
    elif state.status == "newer":
        told = f"is of a newer version ({', '.join(state.unknown)})"
        yield warn("schema", told, "bring this machine's batchfleet up to date")
    else:
        yield fail("schema", f"lacks {', '.join(state.missing)}", _UPGRADE)
