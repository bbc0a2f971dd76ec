"""What the fleet has learned: what every store of it promises, on every database."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan
from pathlib import Path

import pytest
import sqlalchemy as sa

from batchfleet.batching.ceilings import QUIET_S, Ceiling, Ceilings
from batchfleet.batching.cost import ShapeCost
from batchfleet.errors import StoreUnavailableError
from batchfleet.profiles.memory import MemoryProfiles
from batchfleet.profiles.port import MOST_WEIGHT, RATE_MEMORY_S, UNUSED_S, Lesson, ProfileKey, ProfileStore, Rate
from batchfleet.profiles.sql import SqlProfiles
from tests.support.stores import KINDS, Bench, open_bench

KEY = ProfileKey("tiny", "1", "int8", "cpu/Xeon/1")
OTHERS = tuple(
    ProfileKey(*fields)
    for fields in (
        ("tiny", "2", "int8", "cpu/Xeon/1"),
        ("tiny", "1", "fp32", "cpu/Xeon/1"),
        ("tiny", "1", "int8", "cpu/Xeon/2"),
        ("large", "1", "int8", "cpu/Xeon/1"),
    )
)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


@pytest.fixture
def opened(bench: Bench) -> Iterator[Callable[[], ProfileStore]]:
    """Opens the one store again, as another process would."""
    made: list[ProfileStore] = []

    def open_again() -> ProfileStore:
        if bench.kind != "memory":
            made.append(SqlProfiles(bench.url, wall=bench.clock))
        elif not made:
            made.append(MemoryProfiles(bench.clock))
        return made[-1]

    yield open_again
    for store in made:
        store.close()


@pytest.fixture
def profiles(opened: Callable[[], ProfileStore]) -> ProfileStore:
    return opened()


def _lesson(seconds: float, weight: float = 1.0, *, count: int = 4, length: int = 32) -> Lesson:
    return Lesson(costs=(ShapeCost(count, length, seconds, weight),))


def _ran_out(profiles: ProfileStore, length: int, rows: int, *, later_s: float = 0.0) -> None:
    at = profiles.load(KEY).now + later_s
    profiles.tell(KEY, Lesson(ceilings=Ceilings().lowered(length, rows, at)))


class TestCosts:
    def test_a_key_that_nobody_told_of_is_empty(self, profiles: ProfileStore) -> None:
        profile = profiles.load(KEY)

        assert (profile.costs, profile.ceilings, profile.rate, profile.told_s) == ((), Ceilings(), Rate(), None)
        assert profiles.find("tiny") == []
        assert profiles.rates() == []

    def test_shapes_come_back_by_length_then_rows_and_keys_apart(self, profiles: ProfileStore) -> None:
        shapes = [ShapeCost(n, length, n * length / 1e5, 2.0) for length in (512, 16) for n in (8, 1)]
        profiles.tell(KEY, Lesson(costs=shapes))
        for number, other in enumerate(OTHERS):
            profiles.tell(other, _lesson(1.0 + number))

        assert profiles.load(KEY).costs == tuple(reversed(shapes))
        assert [profiles.load(other).costs[0].seconds for other in OTHERS] == [1.0, 2.0, 3.0, 4.0]
        assert [key for key, _ in profiles.find("tiny")] == sorted((KEY, *OTHERS[:3]))
        assert [key for key, _ in profiles.find("tiny", "2")] == [OTHERS[0]]
        assert dict(profiles.find("tiny"))[KEY].costs == profiles.load(KEY).costs

    def test_what_two_tell_of_a_shape_counts_by_its_weight(self, opened: Callable[[], ProfileStore]) -> None:
        opened().tell(KEY, _lesson(0.010, 3.0))
        opened().tell(KEY, _lesson(0.030, 1.0))

        (cost,) = opened().load(KEY).costs

        assert (cost.count, cost.length, cost.weight) == (4, 32, 4.0)
        assert cost.seconds == pytest.approx(0.015)

    def test_old_figures_give_way_however_many_stood_behind_them(self, profiles: ProfileStore) -> None:
        for _ in range(30):
            profiles.tell(KEY, _lesson(0.010, 20.0))
        assert profiles.load(KEY).costs[0].weight == MOST_WEIGHT

        for _ in range(10):
            profiles.tell(KEY, _lesson(0.020, 20.0))

        assert profiles.load(KEY).costs[0].seconds == pytest.approx(0.020, rel=0.05)

    def test_writers_at_once_lose_nothing(self, opened: Callable[[], ProfileStore]) -> None:
        """Two of one key, their shapes in opposite orders, and each its own ceilings."""
        shapes = [ShapeCost(1 << n, 64, 0.01, 1.0) for n in range(8)]
        stores = [opened(), opened()]
        now = stores[0].load(KEY).now

        def tell(which: int) -> None:
            for step in range(10):
                ceilings = Ceilings().lowered(1024 << which, 64 - step, now + step)
                costs = shapes if which else shapes[::-1]
                stores[which].tell(KEY, Lesson(costs, ceilings, Rate(1.0, 10.0, 0.0)))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(tell, (0, 1)))

        profile = opened().load(KEY)
        assert [cost.weight for cost in profile.costs] == [20.0] * 8
        assert all(cost.seconds == pytest.approx(0.01) for cost in profile.costs)
        assert (profile.ceilings.most_rows(1024), profile.ceilings.most_rows(2048)) == (27, 27)
        assert (profile.rate.items, profile.rate.input_bytes) == (20.0, 200.0)


class TestCeilings:
    def test_the_lower_one_stands_whoever_comes_last(self, opened: Callable[[], ProfileStore]) -> None:
        _ran_out(opened(), 512, 16)
        _ran_out(opened(), 512, 64)
        _ran_out(opened(), 128, 256)

        known = opened().load(KEY).ceilings

        assert (known.most_rows(64), known.most_rows(128), known.most_rows(512)) == (None, 128, 8)

    def test_a_ceiling_grows_again_by_the_databases_clock(self, profiles: ProfileStore, bench: Bench) -> None:
        _ran_out(profiles, 512, 16)
        bench.advance(2.5 * QUIET_S)

        profile = profiles.load(KEY)

        assert profile.ceilings.most_rows(512) == 8
        assert profile.ceilings.regrown(profile.now).most_rows(512) == 32

    def test_one_learned_anew_binds_though_an_old_one_has_grown(self, profiles: ProfileStore, bench: Bench) -> None:
        _ran_out(profiles, 512, 16)
        bench.advance(1.5 * QUIET_S)
        _ran_out(profiles, 512, 16)

        profile = profiles.load(KEY)

        assert profile.ceilings.regrown(profile.now).most_rows(512) == 8

    def test_a_clock_that_is_ahead_learns_nothing_in_the_future(self, profiles: ProfileStore, bench: Bench) -> None:
        _ran_out(profiles, 512, 16, later_s=10 * QUIET_S)
        bench.advance(1.5 * QUIET_S)

        profile = profiles.load(KEY)

        assert profile.ceilings.regrown(profile.now).most_rows(512) == 16

    def test_however_often_memory_runs_out_few_rows_are_kept(self, profiles: ProfileStore) -> None:
        for rows in range(300, 2, -7):
            _ran_out(profiles, 256, rows)

        assert len(profiles.load(KEY).ceilings.known) < 4


class TestRates:
    def test_work_adds_up_and_ratios_are_told(self, opened: Callable[[], ProfileStore]) -> None:
        opened().tell(KEY, Lesson(work=Rate(100.0, 4_000.0, 2.0)))
        opened().tell(KEY, Lesson(work=Rate(100.0, 4_000.0, 2.0)))
        opened().tell(OTHERS[0], Lesson(work=Rate(1.0, 1.0, 1.0)))

        rates = {known.key: known for known in opened().rates()}

        assert list(rates) == sorted((KEY, OTHERS[0]))
        assert rates[KEY].rate.items == pytest.approx(200.0, rel=0.01)
        assert rates[KEY].rate.seconds / rates[KEY].rate.input_bytes == pytest.approx(0.0005)
        assert rates[KEY].rate == opened().load(KEY).rate

    def test_the_rate_follows_what_work_costs_now(self, profiles: ProfileStore) -> None:
        for seconds in (1.0, 2.0):
            for _ in range(50):
                profiles.tell(KEY, Lesson(work=Rate(20.0, 100.0, 20.0 * seconds)))

        rate = profiles.load(KEY).rate

        assert rate.seconds / rate.items == pytest.approx(2.0, rel=0.05)
        assert rate.seconds == pytest.approx(RATE_MEMORY_S + 40.0, rel=0.05)

    def test_how_long_ago_is_told(self, profiles: ProfileStore, bench: Bench) -> None:
        profiles.tell(KEY, Lesson())
        bench.advance(60.0)

        (known,) = profiles.rates()

        assert known.told_s == pytest.approx(60.0, abs=1.0)
        assert profiles.load(KEY).told_s == pytest.approx(60.0, abs=1.0)


def test_what_nobody_tells_of_is_removed_whole(profiles: ProfileStore, bench: Bench) -> None:
    ceilings = Ceilings().lowered(64, 8, profiles.load(KEY).now)
    everything = Lesson((ShapeCost(1, 8, 0.1, 1.0),), ceilings, Rate(1.0, 1.0, 1.0))
    for key in (KEY, OTHERS[0]):
        profiles.tell(key, everything)
    bench.advance(UNUSED_S - 60.0)
    profiles.tell(OTHERS[0], Lesson())
    assert profiles.purge() == 0
    bench.advance(120.0)

    assert profiles.purge() == 1

    assert profiles.load(KEY).costs == ()
    assert profiles.load(KEY).ceilings == Ceilings()
    assert len(profiles.load(OTHERS[0]).costs) == len(profiles.load(OTHERS[0]).ceilings.known) == 1


def test_a_database_that_is_away_is_told_as_such(tmp_path: Path) -> None:
    away = SqlProfiles(f"sqlite:///{tmp_path}/nowhere/at/all.db")

    with pytest.raises(StoreUnavailableError):
        away.load(KEY)
    with pytest.raises(StoreUnavailableError):
        away.tell(KEY, Lesson())


class TestWhatCannotBe:
    def test_what_is_told_and_cannot_be_is_not_kept(self, profiles: ProfileStore) -> None:
        now = profiles.load(KEY).now
        wrong = [(0, 32, 0.01, 1.0), (4, -1, 0.01, 1.0), (4, 64, 1e-300, 1.0), (8, 64, 1e308, 1.0), (2, 64, nan, 1.0)]
        costs = [ShapeCost(*figures) for figures in [*wrong, (4, 32, 0.01, nan), (4, 16, 0.01, 1.0)]]
        ceilings = Ceilings((Ceiling(64, 0, now), Ceiling(64, 8, nan), Ceiling(64, 8, -inf), Ceiling(128, 8, now)))

        profiles.tell(KEY, Lesson(costs, ceilings, Rate(nan, 1.0, inf)))

        profile = profiles.load(KEY)
        assert profile.costs == (ShapeCost(4, 16, 0.01, 1.0),)
        assert [(one.length, one.rows) for one in profile.ceilings.known] == [(128, 8)]
        assert profile.rate == Rate()

    @pytest.mark.parametrize("bench", [kind for kind in KINDS if kind != "memory"], indirect=True)
    def test_a_row_that_cannot_be_is_left_out_and_told_of_once(
        self, profiles: ProfileStore, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        profiles.tell(KEY, _lesson(0.01))
        _ran_out(profiles, 512, 16)
        _spoil(bench.url)

        for _ in range(2):
            profile = profiles.load(KEY)

        assert (profile.costs, profile.ceilings, profile.rate) == ((), Ceilings(), Rate())
        assert [known.rate for known in profiles.rates()] == [Rate()]
        assert [vars(record)["action"] for record in caplog.records] == ["profile_odd"]

    @pytest.mark.parametrize("bench", [kind for kind in KINDS if kind != "memory"], indirect=True)
    def test_the_database_itself_takes_no_such_row(self, profiles: ProfileStore, bench: Bench) -> None:
        profiles.tell(KEY, _lesson(0.01))
        engine = sa.create_engine(bench.url, poolclass=sa.NullPool)
        for column, value in (("rows", "0"), ("length", "-1"), ("seconds", "1e308"), ("seconds", "0"), ("weight", "0")):
            with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
                connection.exec_driver_sql(f"UPDATE pass_costs SET {column} = {value}")  # noqa: S608


def _spoil(url: str) -> None:
    """Writes what cannot be: past the constraints where that can be done, else what they let through."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    rows, seconds = "1 << 30", "'Infinity'"
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            rows, seconds = "0", "-1"
        for table, column, value in (
            ("pass_costs", "rows", rows),
            ("memory_ceilings", "rows", rows),
            ("device_rates", "seconds", seconds),
        ):
            connection.exec_driver_sql(f"UPDATE {table} SET {column} = {value}")  # noqa: S608 - names of ours
