"""What the fleet has learned, in the database; see `ProfileStore`."""

from collections.abc import Iterable
from typing import Any

import orjson

from batchfleet import clock
from batchfleet.batching.ceilings import Ceiling, Ceilings
from batchfleet.database.opening import open_database
from batchfleet.database.statements import fragment, records, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.profiles.port import (
    MOST_WEIGHT,
    RATE_MEMORY_S,
    UNUSED_S,
    KnownRate,
    Lesson,
    Profile,
    ProfileKey,
    Rate,
)
from batchfleet.profiles.reading import RowReader, plausible_ceilings, plausible_costs, plausible_rate

_OF_KEY = fragment("model = :model AND version = :version AND variant = :variant AND device = :device")
_KEY = fragment("CAST(:model AS text), CAST(:version AS text), CAST(:variant AS text), CAST(:device AS text)")

# Locks the key's head: those who tell of one key take turns from here on.
_ADD_WORK = sql(
    """
    INSERT INTO device_rates (model, version, variant, device, items, input_bytes, seconds, updated_at)
    VALUES ({key}, :items, :input_bytes, :seconds, :now)
    ON CONFLICT (model, version, variant, device) DO UPDATE SET
        items = device_rates.items * :keep + excluded.items,
        input_bytes = device_rates.input_bytes * :keep + excluded.input_bytes,
        seconds = device_rates.seconds * :keep + excluded.seconds,
        updated_at = excluded.updated_at
    """,
    key=_KEY,
)
# `WHERE true`: without it SQLite takes ON for the beginning of a join.
_ADD_COSTS = sql(
    """
    INSERT INTO pass_costs (model, version, variant, device, length, rows, seconds, weight, updated_at)
    SELECT {key}, r.length, r.rows, r.seconds, r.weight, CAST(:now AS double precision) FROM {learned} WHERE true
    ON CONFLICT (model, version, variant, device, length, rows) DO UPDATE SET
        seconds = (pass_costs.seconds * pass_costs.weight + excluded.seconds * excluded.weight)
                  / (pass_costs.weight + excluded.weight),
        weight = CASE WHEN pass_costs.weight + excluded.weight < :most
                      THEN pass_costs.weight + excluded.weight ELSE :most END,
        updated_at = excluded.updated_at
    """,
    key=_KEY,
    learned=records("r", length="int", rows="int", seconds="float8", weight="float8"),
)
_CEILINGS = sql("SELECT length, rows, updated_at FROM memory_ceilings WHERE {of_key}", of_key=_OF_KEY)
_DROP_CEILINGS = sql("DELETE FROM memory_ceilings WHERE {of_key}", of_key=_OF_KEY)
_PUT_CEILINGS = sql(
    """
    INSERT INTO memory_ceilings (model, version, variant, device, length, rows, updated_at)
    SELECT {key}, r.length, r.rows, r.at FROM {learned}
    """,
    key=_KEY,
    learned=records("r", length="int", rows="int", at="float8"),
)
_COSTS = sql(
    "SELECT rows, length, seconds, weight FROM pass_costs WHERE {of_key} ORDER BY length, rows", of_key=_OF_KEY
)
_RATE = sql("SELECT items, input_bytes, seconds, updated_at FROM device_rates WHERE {of_key}", of_key=_OF_KEY)
_KEYS = sql("""
    SELECT model, version, variant, device FROM device_rates
    WHERE model = :model AND (CAST(:version AS text) IS NULL OR version = :version)
    ORDER BY model, version, variant, device
""")
_RATES = sql("""
    SELECT model, version, variant, device, items, input_bytes, seconds, updated_at FROM device_rates
    ORDER BY model, version, variant, device
""")
_PURGE = sql("DELETE FROM device_rates WHERE updated_at < :before RETURNING model, version, variant, device")
_PURGE_OF_KEY = tuple(
    sql(f"DELETE FROM {table} WHERE {{of_key}}", of_key=_OF_KEY)  # noqa: S608 - names of ours
    for table in ("pass_costs", "memory_ceilings")
)


class SqlProfiles:
    """A `ProfileStore` over SQLite or Postgres. Nothing is connected before it is used.

    Args:
        database_url: `sqlite:///path` or `postgresql+psycopg://…`.
        wall: The time on SQLite. Postgres has its own.
    """

    def __init__(self, database_url: str, *, wall: clock.Wall = clock.wall) -> None:
        self._database = open_database(database_url, wall)
        self._reader = RowReader()

    def load(self, key: ProfileKey) -> Profile:
        """Returns what is known of a key; an empty profile if that is nothing."""
        return self._database.read(lambda tx: _profile(tx, key, self._reader))

    def tell(self, key: ProfileKey, lesson: Lesson) -> None:
        """Adds what a worker learned; see `ProfileStore.tell`."""
        self._database.write(lambda tx: _tell(tx, key, lesson, self._reader))

    def find(self, model: str, version: str | None = None) -> list[tuple[ProfileKey, Profile]]:
        """Returns the profiles of a model (of one version, if given), by key."""

        def find(tx: Transaction) -> list[tuple[ProfileKey, Profile]]:
            keys = sorted(ProfileKey(*row) for row in tx.rows(_KEYS, {"model": model, "version": version}))
            return [(key, _profile(tx, key, self._reader)) for key in keys]

        return self._database.read(find)

    def rates(self) -> list[KnownRate]:
        """Returns the rates of all keys, by key."""

        def rates(tx: Transaction) -> list[KnownRate]:
            rows = tx.rows(_RATES, {})
            return sorted((_known_rate(row, tx.now, self._reader) for row in rows), key=lambda known: known.key)

        return self._database.read(rates)

    def purge(self, unused_s: float = UNUSED_S) -> int:
        """Removes the profiles that no worker has told of for so long; returns how many."""

        def purge(tx: Transaction) -> int:
            gone = [ProfileKey(*row) for row in tx.rows(_PURGE, {"before": tx.now - unused_s})]
            for key in gone:
                for statement in _PURGE_OF_KEY:
                    tx.change(statement, _named(key))
            return len(gone)

        return self._database.write(purge)

    def close(self) -> None:
        """Gives up connections."""
        self._database.close()


def _tell(tx: Transaction, key: ProfileKey, lesson: Lesson, reader: RowReader) -> None:
    named = _named(key)
    work = plausible_rate(lesson.work)
    sums = {"items": work.items, "input_bytes": work.input_bytes, "seconds": work.seconds}
    tx.change(_ADD_WORK, {**named, **sums, "keep": RATE_MEMORY_S / (RATE_MEMORY_S + work.seconds), "now": tx.now})
    if costs := plausible_costs(lesson.costs):
        rows = _json([cost.length, cost.count, cost.seconds, cost.weight] for cost in costs)
        tx.change(_ADD_COSTS, {**named, "rows": rows, "most": MOST_WEIGHT, "now": tx.now})
    # Whoever learned it may have a clock that is ahead: nothing is learned in the future.
    told = Ceilings(tuple(Ceiling(one.length, one.rows, min(one.at, tx.now)) for one in lesson.ceilings.known))
    if (told := plausible_ceilings(told)).known:
        _merge_ceilings(tx, key, told, reader)


def _merge_ceilings(tx: Transaction, key: ProfileKey, told: Ceilings, reader: RowReader) -> None:
    """Merges by the rule of ceilings; rare (memory ran out), and nobody else tells of the key meanwhile."""
    named = _named(key)
    merged = reader.ceilings(key, tx.rows(_CEILINGS, named)).merged(told).regrown(tx.now)
    tx.change(_DROP_CEILINGS, named)
    tx.change(_PUT_CEILINGS, {**named, "rows": _json([one.length, one.rows, one.at] for one in merged.known)})


def _profile(tx: Transaction, key: ProfileKey, reader: RowReader) -> Profile:
    named = _named(key)
    costs = reader.costs(key, tx.rows(_COSTS, named))
    head = tx.rows(_RATE, named)
    ceilings = reader.ceilings(key, tx.rows(_CEILINGS, named))
    rate, told_s = Rate(), None
    if head:
        *sums, updated_at = head[0]
        rate, told_s = reader.rate(key, sums), reader.age_s(updated_at, tx.now)
    return Profile(costs, ceilings, rate, told_s, tx.now)


def _known_rate(row: Row, now: float, reader: RowReader) -> KnownRate:
    key = ProfileKey(*row[:4])
    return KnownRate(key, reader.rate(key, row[4:7]), reader.age_s(row[7], now))


def _named(key: ProfileKey) -> dict[str, Any]:
    return {"model": key.model, "version": key.version, "variant": key.variant, "device": key.device}


def _json(rows: Iterable[list[float]]) -> str:
    return orjson.dumps(list(rows)).decode()
