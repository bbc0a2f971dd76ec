"""The small pure parts at the edge: negotiation, query strings, bodies, the gate, cached reads, the catalog."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import bodies
from api.cached import CachedRead
from api.catalog import Catalog, UnknownModelError
from api.gate import COUNT_EVERY_S, Gate
from api.negotiate import choose, unchanged
from api.newjobs import JobMaker
from api.problems import MalformedBodyError, NotAcceptableError
from api.schemas import JobBody
from batchfleet.access.tenants import Tenant
from batchfleet.clock import ManualClock
from batchfleet.errors import InvalidRequestError, OverloadedError, StoreUnavailableError, TooLargeError
from batchfleet.inference.intake import intake_for
from batchfleet.jobs.job import Lane, QueueDepth
from batchfleet.jobs.states import JobState
from batchfleet.models.repository import ModelRepository
from batchfleet.settings import Settings, UnsafeHostError, check_host, keys_required
from tests.support.apiserver import publish_model

OFFERS = ("application/json", "application/x-npy")


@given(st.text(max_size=60))
def test_no_accept_header_is_our_fault(accept: str) -> None:
    try:
        assert choose(accept, OFFERS) in OFFERS
    except NotAcceptableError as exc:
        assert "application/json" in str(exc)  # noqa: PT017 - what else is raised is the failure


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("application/x-npy;q=1.0;x=y, */*;q=0.1", "application/x-npy"),
        ("APPLICATION/X-NPY", "application/x-npy"),
        ("application/x-npy;q=0.5,application/json;q=0.5", "application/json"),
        ("application/*;q=0.2, application/json;q=0", "application/x-npy"),
        ("application/json;q=2, application/x-npy;q=0.1", "application/x-npy"),
        (" , ", "application/json"),
    ],
)
def test_quality_decides_and_the_most_specific_range_states_it(accept: str, chosen: str) -> None:
    if accept == " , ":
        with pytest.raises(NotAcceptableError):
            choose(accept, OFFERS)
        return
    assert choose(accept, OFFERS) == chosen


@pytest.mark.parametrize(
    ("header", "same"),
    [(None, False), ("", False), ('W/"a"', True), ('"a"', True), ('"b", W/"a"', True), ("*", True), ('"b"', False)],
)
def test_entity_tags_are_compared_weakly(header: str | None, same: bool) -> None:
    assert unchanged(header, 'W/"a"') is same


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"model":5,"inputs":[]}', "model"),
        (b'{"inputs":[]}', "model"),
        (b'{"model":"a","lane":"x"}', "lane"),
        (b'{"model":"a","x`y":1}', "x"),
        (b'{"model":"a","inputs":[[1,[1e999]]]}', "inputs[0][1][0]"),
        (b"[]", None),
    ],
)
def test_the_field_of_a_wrong_form_is_named(body: bytes, field: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        bodies.decode(bodies.job_decoder, body)

    assert caught.value.field == field
    assert "$" not in str(caught.value)


def test_half_a_surrogate_pair_is_hinted_at() -> None:
    with pytest.raises(MalformedBodyError, match="surrogate"):
        bodies.decode(bodies.job_decoder, b'{"model":"a","inputs":["\\ud800"]}')


@given(st.binary(max_size=80), st.booleans())
def test_no_bulk_body_is_our_fault(body: bytes, ndjson: bool) -> None:
    try:
        members = bodies.decode_bulk(body, ndjson=ndjson, limit=100)
    except InvalidRequestError:
        return
    assert members


def test_equal_requests_have_equal_fingerprints_however_they_are_written(tmp_path: Path) -> None:
    def fingerprint(body: bytes) -> str:
        return str(_make(tmp_path, body, key="k").fingerprint)

    first = fingerprint(b'{"model":"tiny","inputs":["a"],"metadata":{"x":1,"y":2}}')

    assert fingerprint(b'{ "metadata":{"y":2,"x":1}, "inputs":["\\u0061"], "model":"tiny"}') == first
    assert fingerprint(b'{"model":"tiny","inputs":["b"],"metadata":{"x":1,"y":2}}') != first
    assert fingerprint(b'{"model":"tiny","inputs":["a"],"metadata":{"x":1,"y":2},"lane":"bulk"}') != first


def test_what_only_looks_like_an_escaped_nul_is_taken(tmp_path: Path) -> None:
    job = _make(tmp_path, b'{"model":"tiny","inputs":["\\\\u0000"]}')

    assert msgspec.json.decode(job.inputs) == ["\\u0000"]


def test_a_nul_in_a_name_inside_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _make(tmp_path, b'{"model":"tiny","inputs":["a"],"metadata":{"a":[{"\\u0000":1}]}}')

    assert caught.value.field == "metadata.a[0]"


@pytest.mark.parametrize(("seconds", "kept"), [(-1e6, False), (0.0, False), (60.0, True)])
def test_a_start_in_the_past_is_at_once(tmp_path: Path, seconds: float, kept: bool) -> None:
    job = _make(tmp_path, b'{"model":"tiny","inputs":["a"]}', starts_in=seconds)

    assert (job.run_at is not None) is kept
    assert job.announced_by_submitter is not kept


@pytest.mark.parametrize(
    ("ttl_s", "starts_in", "taken"), [(60, 60, False), (59, 60, False), (61, 60, True), (1, -60, True)]
)
def test_a_job_that_could_never_start_is_refused(tmp_path: Path, ttl_s: int, starts_in: float, taken: bool) -> None:
    body = f'{{"model":"tiny","inputs":["a"],"ttl_s":{ttl_s}}}'.encode()
    if taken:
        assert _make(tmp_path, body, starts_in=starts_in).ttl_s == ttl_s
        return
    with pytest.raises(InvalidRequestError) as caught:
        _make(tmp_path, body, starts_in=starts_in)
    assert caught.value.field == "ttl_s"


def test_too_many_inputs_are_told_in_the_words_of_the_glossary(tmp_path: Path) -> None:
    inputs = ",".join(['"a"'] * 1025)
    with pytest.raises(TooLargeError) as caught:
        _make(tmp_path, f'{{"model":"tiny","inputs":[{inputs}]}}'.encode())

    assert str(caught.value) == "a job takes at most 1,024 inputs, not 1,025: submit several jobs"
    assert caught.value.field == "inputs"


def _make(folder: Path, body: bytes, *, key: str | None = None, starts_in: float | None = None) -> Any:
    if not (folder / "tiny").exists():
        publish_model(folder)
    now = 1_800_000_000.0
    decoded = bodies.decode(bodies.job_decoder, body)
    if starts_in is not None:
        decoded = msgspec.structs.replace(decoded, run_at=datetime.fromtimestamp(now + starts_in, UTC))
    pinned = asyncio.run(Catalog(ModelRepository(folder), intake_for).pin("tiny", None))
    return JobMaker(Settings(), announced=True, wall=lambda: now).make(
        decoded, pinned, lane=Lane.STANDARD, key=key, tenant=Tenant(name="default")
    )


def test_stated_sizes_are_the_contracts() -> None:
    schema = msgspec.json.schema(JobBody)["$defs"]["JobBody"]

    assert schema["additionalProperties"] is False
    assert schema["required"] == ["model"]


def test_the_gate_counts_now_and_then_and_adds_what_it_let_in() -> None:
    async def scenario() -> None:
        clock, counts = ManualClock(), [0]

        async def count() -> list[QueueDepth]:
            counts[0] += 1
            return [
                QueueDepth("m", Lane.BULK, JobState.QUEUED, 5, 1.0),
                QueueDepth("m", Lane.BULK, JobState.RUNNING, 100, 1.0),
            ]

        gate = Gate(count, 10, clock=clock)
        gate.admit(1)  # nothing is known yet
        for _ in range(3):
            await asyncio.sleep(0)
        gate.admit(4)
        with pytest.raises(OverloadedError) as caught:
            gate.admit(2)
        assert caught.value.retry_after_s >= 1.0
        assert counts == [1]
        clock.advance(COUNT_EVERY_S)
        with pytest.raises(OverloadedError):
            gate.admit(6)
        for _ in range(3):
            await asyncio.sleep(0)
        gate.admit(5)
        assert counts == [2]

    asyncio.run(scenario())


def test_a_gate_that_cannot_count_lets_in() -> None:
    async def scenario() -> None:
        async def count() -> list[QueueDepth]:
            raise StoreUnavailableError("away")

        gate = Gate(count, 1, clock=ManualClock())
        for _ in range(3):
            gate.admit(1)
            await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_cached_read_is_made_once_for_all_and_again_when_old() -> None:
    async def scenario() -> None:
        clock, reads = ManualClock(), [0]

        async def read() -> int:
            reads[0] += 1
            await asyncio.sleep(0)
            return reads[0]

        cached = CachedRead(read, fresh_s=2.0, clock=clock)
        assert await asyncio.gather(*(cached.get() for _ in range(3))) == [1, 1, 1]
        assert await cached.get() == 1
        clock.advance(2.0)
        assert cached.glance() == 1
        assert await cached.get() == 2

    asyncio.run(scenario())


def test_a_cached_read_that_fails_is_raised_and_tried_again() -> None:
    async def scenario() -> None:
        answers: list[Any] = [StoreUnavailableError("away"), 7]

        async def read() -> int:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, int)
            return answer

        cached = CachedRead(read, fresh_s=2.0, clock=ManualClock())
        with pytest.raises(StoreUnavailableError):
            await cached.get()
        assert await cached.get() == 7

    asyncio.run(scenario())


def test_the_catalog_sees_a_new_version_when_its_answer_is_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        publish_model(tmp_path)
        clock = ManualClock()
        catalog = Catalog(ModelRepository(tmp_path), intake_for, clock=clock)
        first = await catalog.pin("tiny", None)
        publish_model(tmp_path, version="2")
        same = await catalog.pin("tiny", None)
        clock.advance(1.0)
        newest = await catalog.pin("tiny", None)

        assert [pinned.ref.version for pinned in (first, same, newest)] == ["1", "1", "2"]
        assert (await catalog.pin("tiny", "1")).ref.version == "1"

    asyncio.run(scenario())


@pytest.mark.parametrize(("model", "version", "field"), [("nope", None, "model"), ("tiny", "9", "version")])
def test_the_catalog_names_what_is_unknown(tmp_path: Path, model: str, version: str | None, field: str) -> None:
    publish_model(tmp_path)
    with pytest.raises(UnknownModelError) as caught:
        asyncio.run(Catalog(ModelRepository(tmp_path), intake_for).pin(model, version))

    assert caught.value.field == field


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.10"])
def test_loopback_is_open(host: str) -> None:
    check_host(host, require_keys=False)
    assert not keys_required(host, None)
    assert keys_required(host, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org"])  # noqa: S104
def test_everything_else_needs_keys(host: str) -> None:
    check_host(host)
    assert keys_required(host, None)
    with pytest.raises(UnsafeHostError, match="REQUIRE_KEYS"):
        check_host(host, require_keys=False)
