"""Whose call of the blob store is next, and when none is made at all."""

import pytest

from api.turns import Circuit, Turn, Turns
from batchfleet.errors import OverloadedError


class Calls:
    def __init__(self, **bounds: int) -> None:
        stated = {"threads": 4, "share": 2, "waiting": 6, "waiting_each": 4, **bounds}
        self.turns = Turns(**stated, retry_after_s=5.0)
        self.went: list[str] = []
        self.by_name: dict[str, Turn] = {}

    def ask(self, *names: str) -> None:
        """Each is called after its tenant."""
        for name in names:
            self.by_name[name] = Turn(name[0], lambda name=name: self.went.append(name))  # type: ignore[misc]
            self.turns.ask(self.by_name[name])

    def done(self, name: str) -> None:
        self.turns.done(self.by_name[name])


def test_a_tenant_holds_its_share_at_most_and_the_others_find_a_thread_at_once() -> None:
    calls = Calls()
    calls.ask("a1", "a2", "a3", "a4")
    assert calls.went == ["a1", "a2"]

    calls.ask("b1")
    assert calls.went == ["a1", "a2", "b1"]
    calls.done("a1")
    assert calls.went == ["a1", "a2", "b1", "a3"]


def test_a_thread_that_is_free_goes_to_whom_has_fewest() -> None:
    calls = Calls(threads=2, share=2)
    calls.ask("a1", "a2", "a3", "b1")

    calls.done("a1")

    assert calls.went == ["a1", "a2", "b1"]


def test_who_gave_up_waiting_is_passed_over() -> None:
    calls = Calls(threads=1)
    calls.ask("a1", "a2", "b1")
    assert calls.turns.forget(calls.by_name["a2"])
    assert not calls.turns.forget(calls.by_name["a1"]), "it has its thread"

    calls.done("a1")

    assert calls.went == ["a1", "b1"]


def test_so_many_wait_at_most_of_a_tenant_and_in_all() -> None:
    calls = Calls()
    calls.ask("a1", "a2", "a3", "a4", "a5", "a6")
    with pytest.raises(OverloadedError):
        calls.ask("a7")
    calls.ask("b1", "b2", "b3", "b4")
    with pytest.raises(OverloadedError) as caught:
        calls.ask("c1")

    assert caught.value.retry_after_s == 5.0


def test_timeouts_one_after_another_open_the_circuit_until_a_probe_is_answered() -> None:
    circuit = Circuit(limit=3, pause_s=5.0, probe_s=40.0)
    for _ in range(2):
        circuit.timed_out(100.0)
    assert circuit.lets(100.0)
    circuit.timed_out(100.0)

    assert not circuit.lets(104.9)
    assert circuit.lets(105.0), "the probe"
    assert not circuit.lets(106.0), "one at a time"
    circuit.timed_out(135.0)
    assert not circuit.lets(139.0)
    assert circuit.lets(140.0)
    circuit.answered()
    assert circuit.lets(140.0)
    assert circuit.lets(140.0)


def test_a_probe_that_is_lost_is_not_waited_for_for_ever() -> None:
    circuit = Circuit(limit=1, pause_s=5.0, probe_s=40.0)
    circuit.timed_out(0.0)

    assert [circuit.lets(now) for now in (5.0, 44.9, 45.0)] == [True, False, True]


def test_an_answer_in_between_keeps_it_closed() -> None:
    circuit = Circuit(limit=2)
    for _ in range(5):
        circuit.timed_out(0.0)
        circuit.answered()

    assert circuit.lets(0.0)
