"""The CPU time of processes is told to a fraction of a tick, whatever has ended meanwhile."""

import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from batchfleet.embedded.processes import childrens_cpu_s, read_stat

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def own_cpu_s() -> float:
    stat = read_stat(os.getpid())
    assert stat is not None
    return stat.cpu_s


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_process_is_known_to_less_than_a_tick() -> None:
    for _ in range(3):
        before = time.process_time()
        found = own_cpu_s()
        assert before <= found <= time.process_time()
        burn(TICK_S / 4)


def test_what_a_thread_used_stays_when_it_has_ended() -> None:
    before = own_cpu_s()
    thread = threading.Thread(target=burn, args=(2 * TICK_S,))
    thread.start()
    thread.join()

    assert own_cpu_s() - before >= 2 * TICK_S


def test_without_the_clock_ticks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(clock: int) -> float:
        raise OSError(clock)

    monkeypatch.setattr(time, "clock_gettime", none)

    assert 0 < own_cpu_s() <= time.process_time()
    assert own_cpu_s() == pytest.approx(time.process_time(), abs=3 * TICK_S)


def test_a_child_counts_from_its_first_instruction_until_after_its_end() -> None:
    before = childrens_cpu_s(os.getpid())
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = BURN.format(seconds=0.05) + "print(time.process_time(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    told = float(child.stdout.readline())

    running = childrens_cpu_s(os.getpid()) - before
    child.communicate("\n")
    ended = childrens_cpu_s(os.getpid()) - before

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - reaped.ru_utime - reaped.ru_stime
    assert running >= told
    assert ended == pytest.approx(spent, abs=4 * TICK_S)
