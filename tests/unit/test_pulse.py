"""A pulse says that a loop goes round; what it cannot write costs nothing."""

from pathlib import Path

from batchfleet.pulse import Pulse, age_of, is_idle, pulse_path


class Hand:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_beat_ages_and_is_renewed(tmp_path: Path) -> None:
    clock, path = Hand(), pulse_path(tmp_path, "worker", "w/1")
    pulse = Pulse(path, clock=clock)
    assert age_of(path, clock()) is None

    pulse.beat()
    assert age_of(path, 1012.5) == 12.5

    clock.now = 1100.0
    pulse.beat()
    assert age_of(path, 1101.0) == 1.0


def test_it_is_not_written_at_every_round(tmp_path: Path) -> None:
    clock, path = Hand(), tmp_path / "p"
    pulse = Pulse(path, gap_s=5, clock=clock)
    pulse.beat()

    clock.now += 4
    pulse.beat()

    assert age_of(path, clock()) == 4


def test_after_its_end_it_does_not_beat(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pulse = Pulse(path)
    pulse.beat()

    pulse.end()
    pulse.end()
    pulse.beat()

    assert age_of(path, 1e9) is None


def test_a_worker_without_a_model_runs_and_does_not_beat(tmp_path: Path) -> None:
    clock, path = Hand(), tmp_path / "p"
    pulse = Pulse(path, clock=clock)
    pulse.idle()
    assert is_idle(path)
    assert age_of(path, clock()) is None

    pulse.beat()
    assert not is_idle(path)
    assert age_of(path, clock()) == 0


def test_two_processes_may_share_one(tmp_path: Path) -> None:
    clock, path = Hand(), tmp_path / "p"
    first, second = Pulse(path, clock=clock), Pulse(path, clock=clock)
    first.beat()
    second.end()

    clock.now += 6
    first.beat()

    assert age_of(path, clock()) == 0


def test_a_beat_from_before_the_machines_start_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "p"
    Pulse(path, clock=Hand()).beat()

    assert age_of(path, 10.0) is None


def test_a_folder_that_cannot_be_written_costs_only_the_pulse() -> None:
    pulse = Pulse(Path("/dev/null/x/p"))

    pulse.beat()
    pulse.end()

    assert age_of(Path("/dev/null/x/p"), 1.0) is None
