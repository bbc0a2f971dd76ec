"""Nobody's webhooks keep another's waiting, with time in the test's hands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.jobs.job import new_job_id
from batchfleet.outbox.delivery import DeliveryKind, Lane
from scheduler.shares import PER_LOOK, RECEIVERS, REMEMBERED_S, SLOW_S, WAITING, Shares, Turn, receiver_of

HOOK, OUTPUT = DeliveryKind.WEBHOOK, DeliveryKind.OUTPUT


def turn(tenant: str = "a", receiver: str | None = None, kind: DeliveryKind = HOOK) -> Turn:
    made = new_job_id()
    return Turn(made, Lane(kind, tenant), receiver or made)


@pytest.fixture
def shares() -> Shares:
    return Shares({HOOK: 4, OUTPUT: 2})


def test_a_tenant_has_half_of_the_places_and_others_have_the_rest(shares: Shares) -> None:
    assert [shares.begin(turn("a"), 0.0) for _ in range(3)] == [True, True, False]

    assert [shares.begin(turn("b"), 0.0) for _ in range(3)] == [True, True, False]
    assert not shares.begin(turn("c"), 0.0)


def test_outputs_have_places_of_their_own(shares: Shares) -> None:
    for tenant in "aabb":
        assert shares.begin(turn(tenant), 0.0)

    assert shares.begin(turn("a", kind=OUTPUT), 0.0)
    assert not shares.begin(turn("a", kind=OUTPUT), 0.0)
    assert shares.begin(turn("b", kind=OUTPUT), 0.0)


def test_what_waited_gets_its_turn_and_tenants_take_turns(shares: Shares) -> None:
    began = [turn("a"), turn("a"), turn("b"), turn("b")]
    for each in began:
        assert shares.begin(each, 0.0)
    waiting = [turn("a"), turn("a"), turn("c"), turn("c"), turn("b")]
    assert not any(shares.begin(each, 0.1) for each in waiting)

    order = []
    for each in began:
        shares.end(each, 0.0, 1.0)
        order.append(shares.next(1.0))

    assert order == [waiting[0], waiting[2], waiting[4], waiting[1]]


def test_a_slow_receiver_is_tried_by_one_at_a_time_until_it_answers_quickly(shares: Shares) -> None:
    slow = turn(receiver="x")
    assert shares.begin(slow, 0.0)
    assert not shares.begin(turn(receiver="x"), SLOW_S + 0.1)
    assert shares.begin(turn(receiver="y"), SLOW_S + 0.1)
    shares.end(slow, 0.0, 15.0)

    probe = shares.next(15.0)
    assert probe is not None
    assert not shares.begin(turn("b", "x"), 15.0)
    shares.end(probe, 15.0, 15.1)

    assert shares.begin(turn("b", "x"), 15.1)
    assert shares.begin(turn("b", "x"), 15.1)


def test_a_slow_receiver_is_forgotten_in_its_time(shares: Shares) -> None:
    slow = turn(receiver="x")
    shares.begin(slow, 0.0)
    shares.end(slow, 0.0, 10.0)

    assert [shares.begin(turn(receiver="x"), 10.0 + REMEMBERED_S) for _ in range(2)] == [True, True]


def test_a_lane_that_is_full_says_so_while_somebody_makes_room(shares: Shares) -> None:
    began = [turn(), turn()]
    for each in began:
        shares.begin(each, 0.0)
    for _ in range(2 * WAITING):
        shares.begin(turn(), 0.0)
    assert shares.full() == [Lane(HOOK, "a")]

    for each in began:
        shares.end(each, 0.0, 0.1)

    # An outage ended both without a next one: whatever is rung for then begins again.
    assert shares.full() == []


def test_those_to_a_slow_receiver_leave_room_for_the_others(shares: Shares) -> None:
    slow = turn(receiver="x")
    shares.begin(slow, 0.0)
    for _ in range(WAITING):
        shares.begin(turn(receiver="x"), SLOW_S + 1)

    assert shares.full() == []
    assert shares.begin(turn(receiver="y"), SLOW_S + 1)


def test_a_second_ring_changes_nothing(shares: Shares) -> None:
    began = [turn(), turn()]
    waiting = [turn(), turn()]
    for each in began + waiting + waiting[::-1]:
        shares.begin(each, 0.0)
    shares.end(began[0], 0.0, 0.1)

    assert shares.next(0.1) == waiting[0]


def test_one_place_is_everybodys() -> None:
    shares = Shares({HOOK: 1, OUTPUT: 1})
    first = turn("a")

    assert shares.begin(first, 0.0)
    assert not shares.begin(turn("b"), 0.0)
    shares.end(first, 0.0, 1.0)
    assert shares.next(1.0) is not None


def test_what_is_remembered_is_bounded(shares: Shares) -> None:
    for number in range(2 * RECEIVERS):
        each = turn(f"tenant {number}")
        assert shares.begin(each, 0.0)
        shares.end(each, 0.0, 10.0)

    assert len(shares._slow_until) == RECEIVERS
    assert not shares._lanes
    assert not shares._running


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from([HOOK, OUTPUT]))))
def test_everything_that_waits_is_attempted_once(asked: list[tuple[str, str, DeliveryKind]]) -> None:
    shares = Shares({HOOK: 3, OUTPUT: 1})
    turns = [turn(tenant, receiver, kind) for tenant, receiver, kind in asked[:PER_LOOK]]
    running = [each for each in turns if shares.begin(each, 0.0)]
    done = []
    while running:
        done.append(running.pop())
        shares.end(done[-1], 0.0, 0.0)
        while (after := shares.next(0.0)) is not None:
            running.append(after)

    assert sorted(each.id for each in done) == sorted(each.id for each in turns)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://Hook.Example/a", "https://hook.example.:443/b?c"),
        ("http://h.example", "http://h.example:80/"),
        ("http://[2606:4700:0:0::1]/", "http://[2606:4700::1]:80/"),
        ("s3://bucket/a", "s3://bucket/b"),
    ],
)
def test_a_receiver_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert receiver_of(one) == receiver_of(other) != receiver_of("https://other.example/")


def test_what_is_no_url_is_a_receiver_still() -> None:
    assert receiver_of("http://[::1/") == "http://[::1/"
