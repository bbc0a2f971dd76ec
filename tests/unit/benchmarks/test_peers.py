"""The peers' runner without the peers: which settings it tries, what it reports, and that it leaves nothing behind."""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from batchfleet.embedded.bench import plans
from batchfleet.embedded.bench.memory import Resident
from batchfleet.embedded.processes import alive
from benchmarks.peers.callers import Called
from benchmarks.peers.environments import requirements
from benchmarks.peers.processes import PeerFailedError, Processes
from benchmarks.peers.report import row, table, vector_of, worst_cosine
from benchmarks.peers.run import Found, parse, tell
from benchmarks.peers.servers.embed import passes
from benchmarks.peers.settings import BATCHES, PEERS, Setting, best_of, candidates, finals
from benchmarks.peers.systems import Outcome

THIRTY_TWO = Setting(batch=32, wait_ms=10)
VECTORS = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)


def outcome(seconds: float, answers: Mapping[int, str] | None = None, *, texts: int = 6) -> Outcome:
    right = {index: json.dumps(vector.tolist()) for index, vector in enumerate(VECTORS)}
    called = Called(seconds, np.full(texts, 0.010), 0.6, right if answers is None else answers)
    return Outcome(called, {"server": 1.2, "broker": 0.3}, [Resident(3 * 1024, 1024), Resident(5 * 1024, 1024)])


def test_a_stage_changes_the_best_so_far_and_repeats_nothing() -> None:
    tried = {THIRTY_TWO: 10.0}

    found = candidates(THIRTY_TWO, BATCHES, tried)

    assert THIRTY_TWO not in found
    assert {(one.batch, one.sort) for one in found} == {(1, False), (8, False), (8, True), (32, True)}
    assert {one.wait_ms for one in found} == {10}


def test_one_that_does_not_batch_has_no_wait_to_try() -> None:
    """Otherwise three equal settings would be measured, and the luckiest of them be called the best wait."""
    assert candidates(Setting(batch=1), ({"wait_ms": 2}, {"wait_ms": 40}), ()) == []
    assert len(candidates(Setting(batch=8), ({"wait_ms": 2}, {"wait_ms": 40}), ())) == 2


def test_the_best_is_the_fastest_and_its_plain_form_is_measured_too() -> None:
    plain, compact = Setting(batch=8, sort=True), Setting(batch=8, sort=True, compact=True)
    rates = {THIRTY_TWO: 10.0, plain: 40.0, compact: 50.0}

    assert best_of(rates) == compact
    assert finals(PEERS[0], rates) == {"naive": PEERS[0].naive, "best": compact, "best, JSON": plain}
    assert finals(PEERS[0], {THIRTY_TWO: 10.0, plain: 60.0, compact: 50.0}) == {"naive": PEERS[0].naive, "best": plain}
    with pytest.raises(ValueError, match="no setting worked"):
        best_of({})


def test_every_peer_has_pinned_requirements_and_the_same_runtime() -> None:
    """Another ONNX Runtime in one of the environments would compare runtimes, not systems."""
    shared = set()
    for peer in PEERS:
        lines = requirements(peer.name).read_text(encoding="utf-8").split()
        assert all(line.count("==") == 1 for line in lines)
        shared.add(frozenset(line for line in lines if line.startswith(("numpy=", "onnxruntime=", "tokenizers="))))

    assert len(shared) == 1
    assert len(next(iter(shared))) == 3


def test_a_handler_that_sorts_cuts_as_the_best_loop_does() -> None:
    lengths = [int(length) for length in np.random.default_rng(2).lognormal(3.4, 0.8, 64).clip(3, 256)]

    for budget in plans.BUDGETS:
        loop = plans.batches(lengths, plans.Plan(2, 1, budget))
        assert list(passes(lengths, budget)) == [list(batch.texts) for batch in loop]
    assert list(passes(lengths, None)) == [list(range(64))]


@pytest.mark.parametrize("form", ["list", "base64", "list of one", "under a name", "job"])
def test_vectors_are_read_in_every_form_that_a_system_answers_in(form: str) -> None:
    vector = VECTORS[0]
    text = base64.b64encode(vector.tobytes()).decode()
    answer = {
        "list": json.dumps(vector.tolist()),
        "base64": json.dumps(text),
        "list of one": json.dumps([vector.tolist()]),
        "under a name": json.dumps({"vector": text}),
        "job": json.dumps({"status": "succeeded", "result": {"values": [vector.tolist()]}}),
    }[form]

    np.testing.assert_allclose(vector_of(answer), vector, rtol=1e-6)


def test_answers_of_other_texts_are_found_wrong() -> None:
    swapped = {0: json.dumps(VECTORS[1].tolist()), 1: json.dumps(VECTORS[0].tolist())}

    found = row("peer", "best", "batch 8", [(outcome(1.0, swapped), 10.0)], VECTORS)

    assert not found.ok
    assert "WRONG" in table([found])
    assert row("peer", "best", "batch 8", [(outcome(1.0), 10.0)], VECTORS).ok


def test_no_answer_or_half_a_vector_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="no answer"):
        worst_cosine({}, VECTORS)
    for answer in (json.dumps(VECTORS[0][:4].tolist()), "[1.0, NaN]", '{"detail": "no"}', "null", "busy"):
        assert worst_cosine({0: answer}, VECTORS) == -1.0


def test_each_round_is_compared_with_the_loop_of_its_own() -> None:
    """On a machine that slows down for a round, the medians of both would be of different rounds."""
    runs = [(outcome(1.0), 12.0), (outcome(2.0), 6.0), (outcome(1.0), 12.0)]

    found = row("peer", "best", "batch 8", runs, VECTORS)

    assert found.ratio == 0.5
    assert found.texts_per_s == 6.0
    figures = found.to_json()
    assert figures["rounds_ratio"] == [0.5, 0.5, 0.5]
    assert figures["cpu_ms_per_text"] == {"server": 200.0, "broker": 50.0}
    assert figures["callers_cpu_ms_per_text"] == 100.0
    assert figures["latency_ms"] == {"p50": 10.0, "p99": 10.0}
    assert figures["rss_mb"] == {"all": 7, "largest": 5}


def test_nothing_of_a_peer_outlives_it(tmp_path: Path) -> None:
    """Some peers' processes leave their group: killing the group alone would leave them on the next peer's cores."""
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    command = ["sh", "-c", f"trap '' TERM; setsid sleep 600 & echo $! > {fifo}; exec sleep 600"]

    with Processes({"server": [command]}, dict(os.environ), tmp_path / "log", stop_s=0.1) as processes:
        child = int(fifo.read_text(encoding="ascii"))
        processes.check()
        assert alive(child)
        assert len(processes.usage().memory) == 2

    assert not alive(child)


def test_a_peer_that_ended_is_noticed_with_what_it_said(tmp_path: Path) -> None:
    fifo = tmp_path / "gone"
    os.mkfifo(fifo)
    command = ["sh", "-c", f"echo no such model; exec 3> {fifo}; exit 3"]

    with Processes({"server": [command]}, dict(os.environ), tmp_path / "log") as processes:
        fifo.read_text(encoding="ascii")  # to its end: the process is gone
        processes.wait()
        with pytest.raises(PeerFailedError, match=r"(?s)ended with 3.*no such model"):
            processes.check()


def test_what_failed_is_told_beside_what_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that breaks at a setting costs its row, not the others' figures."""
    found = Found(Path("python"), rates={THIRTY_TWO: 10.0}, failed={"batch 1": "its server ended with 1"})
    rows = [row("batchfleet", "", "?wait", [(outcome(1.0), 12.0)], VECTORS)]

    tell(rows, {PEERS[0]: found}, {"texts": 6}, as_json=True)
    figures = json.loads(capsys.readouterr().out)
    tell(rows, {PEERS[0]: found}, {"texts": 6}, as_json=False)
    text = capsys.readouterr().out

    assert figures["failed"] == {"mosec": {"batch 1": "its server ended with 1"}}
    assert figures["sweeps"] == {"mosec": {str(THIRTY_TWO): 10.0}}
    assert [one["system"] for one in figures["rows"]] == ["batchfleet"]
    assert "failed: mosec (batch 1): its server ended with 1" in text
    assert "batchfleet" in text


def test_unknown_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["--peers", "mosec,nothing"])

    assert "'nothing' is none of mosec" in capsys.readouterr().err
    assert [peer.name for peer in parse(["--peers", "mosec, celery"]).peers] == ["mosec", "celery"]
    assert parse(["--peers", "none"]).peers == []
