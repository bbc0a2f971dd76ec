"""Candidates for a fair choice: the oldest of every flow, found without reading the backlog.

A flow is what shares the fleet: (model, lane, tenant). Taking the oldest rows of the whole queue would show one
tenant's million jobs and nobody else; ranking the queue with a window function reads all of it. Instead one
index probe hops from each flow to the next, and a short range of each is read. Where there are more flows than
`MAX_FLOWS`, the oldest rows of the whole queue, which are added, bring in the rest in their time.
"""

from collections.abc import Collection, Iterable, Sequence

import orjson

from batchfleet.database.statements import Sql, records, same, sql
from batchfleet.database.transaction import Row, Transaction
from batchfleet.jobs.fairness import Candidate
from batchfleet.jobs.job import Lane

MAX_FLOWS = 512
"""Flows that one choice looks at."""

OVERSAMPLE = 4
"""Candidates per job wanted: enough for the order to be fair, few enough to read."""

MIN_HEADS = 16
"""Candidates of one flow, however many flows there are: what the heaviest may take before the lightest's turn."""

_MODELS = sql(
    """
    WITH RECURSIVE hop(model) AS (
        SELECT (SELECT model FROM jobs WHERE state = 'queued' AND model > '' ORDER BY model LIMIT 1)
        UNION ALL
        SELECT (SELECT j.model FROM jobs j WHERE j.state = 'queued' AND j.model > hop.model ORDER BY j.model LIMIT 1)
        FROM hop WHERE hop.model IS NOT NULL
    )
    SELECT model FROM hop WHERE model IS NOT NULL LIMIT :flows
    """,
)
_FIRST = """(
            SELECT n.id FROM jobs n WHERE n.state = 'queued' AND n.model = r.model
            ORDER BY n.model, n.lane, n.tenant LIMIT 1)"""
_NEXT = """COALESCE(
            (SELECT n.id FROM jobs n
             WHERE n.state = 'queued' AND n.model = hop.model AND n.lane = hop.lane AND n.tenant > hop.tenant
             ORDER BY n.model, n.lane, n.tenant LIMIT 1),
            (SELECT n.id FROM jobs n WHERE n.state = 'queued' AND n.model = hop.model AND n.lane > hop.lane
             ORDER BY n.model, n.lane, n.tenant LIMIT 1))"""
_FLOWS = sql(
    """
    WITH RECURSIVE hop(id, model, lane, tenant) AS (
        SELECT j.id, j.model, j.lane, j.tenant FROM {rows} JOIN jobs j ON {first}
        UNION ALL
        SELECT j.id, j.model, j.lane, j.tenant FROM hop JOIN jobs j ON {next}
    )
    SELECT model, lane, tenant FROM hop LIMIT :flows
    """,
    rows=records("r", model="text"),
    first=same("j.id", _FIRST),
    next=same("j.id", _NEXT),
)

_CANDIDATE = "j.id, j.lane, j.model, j.tenant, j.item_count, j.input_bytes, j.run_at"
_READY = """
    SELECT h.* FROM jobs h
    WHERE h.state = 'queued' AND h.model = r.model AND h.lane = r.lane AND h.tenant = r.tenant
      AND h.run_at <= :now AND (h.expires_at IS NULL OR h.expires_at > :now)
    ORDER BY h.run_at LIMIT :{limit}
"""
_DUE = f"""
    SELECT s.* FROM ({_READY.format(limit="scan")}) s
    WHERE s.announce_at <= :now ORDER BY s.run_at LIMIT :heads
"""  # noqa: S608 - text of ours


def _of_each_flow(heads: str) -> Sql:
    """Returns the query for some rows of each flow of `:rows`. SQLite has no LATERAL, and needs none."""
    rows = records("r", model="text", lane="text", tenant="text")
    return sql(
        f"SELECT {_CANDIDATE} FROM {{rows}} JOIN jobs j ON j.id IN (SELECT t.id FROM ({heads}) t)",  # noqa: S608
        f"SELECT {_CANDIDATE} FROM {{rows}} CROSS JOIN LATERAL ({heads}) j",  # noqa: S608
        rows=rows,
    )


_READY_HEADS = _of_each_flow(_READY.format(limit="heads"))
_DUE_HEADS = _of_each_flow(_DUE)
_OLDEST = sql(
    f"""
    SELECT {_CANDIDATE} FROM (
        SELECT * FROM jobs WHERE state = 'queued' AND announce_at <= :now ORDER BY announce_at LIMIT :oldest) j
    WHERE j.run_at <= :now AND (j.expires_at IS NULL OR j.expires_at > :now)
    """,  # noqa: S608
)


def ready_candidates(tx: Transaction, models: Sequence[str], max_items: int) -> list[Candidate]:
    """Returns jobs of these models (all if empty) that may start now, each flow oldest first."""
    flows = _flows(tx, models)
    if not flows:
        return []
    heads = _heads(max_items, len(flows))
    found = tx.rows(_READY_HEADS, {"rows": _json(flows), "now": tx.now, "heads": heads})
    if len(flows) >= MAX_FLOWS:
        served = {model for model, _, _ in flows}
        oldest = tx.rows(_OLDEST, {"now": tx.now, "oldest": OVERSAMPLE * max_items})
        found += [row for row in oldest if row[2] in served]
    return _candidates(found, tx.now)


def due_candidates(tx: Transaction, limit: int, skip: Collection[tuple[str, Lane]]) -> list[Candidate]:
    """Returns queued jobs whose announcement is due, each flow oldest first.

    Args:
        tx: The transaction.
        limit: How many are wanted.
        skip: (model, lane) of jobs to leave out.
    """
    found = tx.rows(_OLDEST, {"now": tx.now, "oldest": OVERSAMPLE * limit})
    if len(found) >= limit:
        # There may be flows behind these rows.
        flows = [flow for flow in _flows(tx, ()) if (flow[0], flow[1]) not in skip]
        heads = _heads(limit, len(flows))
        found += tx.rows(_DUE_HEADS, {"rows": _json(flows), "now": tx.now, "heads": heads, "scan": OVERSAMPLE * heads})
    return _candidates([row for row in found if (row[2], row[1]) not in skip], tx.now)


def _heads(wanted: int, flows: int) -> int:
    """Returns how many jobs to read of each flow."""
    return min(wanted, max(MIN_HEADS, OVERSAMPLE * wanted // max(1, flows)))


def _flows(tx: Transaction, models: Sequence[str]) -> list[Row]:
    wanted = [[model] for model in models] or tx.rows(_MODELS, {"flows": MAX_FLOWS})
    return tx.rows(_FLOWS, {"rows": _json(wanted), "flows": MAX_FLOWS}) if wanted else []


def _candidates(rows: Iterable[Row], now: float) -> list[Candidate]:
    unique = {row[0]: row for row in rows}
    ordered = sorted(unique.values(), key=lambda row: (row[6], row[0]))
    return [
        Candidate(job_id, Lane(lane), model, tenant, items, size, max(0.0, now - run_at))
        for job_id, lane, model, tenant, items, size, run_at in ordered
    ]


def _json(rows: Sequence[Sequence[object]]) -> str:
    return orjson.dumps(rows).decode()
