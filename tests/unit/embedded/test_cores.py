"""Cores are counted as the kernel will grant them."""

from pathlib import Path

import pytest

from batchfleet.embedded.cores import Cores, cgroup_quota, physical_cores, usable_cores


def test_the_smallest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    inner = tmp_path / "pod" / "box"
    inner.mkdir(parents=True)
    (tmp_path / "pod" / "cpu.max").write_text("150000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    membership = tmp_path / "cgroup"
    membership.write_text("0::/pod/box\n")

    assert cgroup_quota(tmp_path, membership) == 1.5


def test_version_one_quota(tmp_path: Path) -> None:
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    membership = tmp_path / "cgroup"
    membership.write_text("3:cpu:/docker/abc\n")

    assert cgroup_quota(tmp_path, membership) == 2.0


def test_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path, tmp_path / "missing") is None


@pytest.mark.parametrize("quota", [None, 0.5])
def test_at_least_one_core_is_usable(monkeypatch: pytest.MonkeyPatch, quota: float | None) -> None:
    monkeypatch.setattr("batchfleet.embedded.cores.cgroup_quota", lambda *_: quota)

    assert usable_cores() >= 1


def siblings(root: Path, lists: dict[int, str]) -> Path:
    for cpu, text in lists.items():
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    return root


def test_hyperthreads_of_one_core_count_once(tmp_path: Path) -> None:
    root = siblings(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})

    assert physical_cores({0, 1, 4, 5}, root) == 2


def test_a_cpuset_of_odd_cpus_is_as_many_cores_as_it_touches(tmp_path: Path) -> None:
    root = siblings(tmp_path, {1: "0-1", 3: "2-3", 5: "4-5"})

    assert physical_cores({1, 3, 5}, root) == 3


def test_where_the_kernel_is_silent_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert physical_cores({0, 1, 2}, tmp_path) == 3


@pytest.mark.parametrize(
    ("cores", "usable", "splits"),
    [
        (Cores(1, 1), 1, [(1, 1)]),
        (Cores(2, 2), 2, [(2, 1), (1, 2)]),
        (Cores(2, 2, quota=1.5), 1, [(2, 1), (1, 1)]),  # a second worker may use the half core
        (Cores(8, 8, quota=0.5), 1, [(1, 1)]),
        (Cores(8, 8, quota=2.5), 2, [(3, 1), (2, 1), (1, 2)]),
        (Cores(3, 3), 3, [(3, 1), (1, 3)]),  # a cpuset of odd size has no even halves
        (Cores(4, 2), 4, [(4, 1), (2, 1), (2, 2), (1, 4)]),  # a worker a hyperthread, or a core
        (Cores(2, 2, quota=7.5), 2, [(2, 1), (1, 2)]),
    ],
)
def test_splits_worth_measuring(cores: Cores, usable: int, splits: list[tuple[int, int]]) -> None:
    assert cores.usable == usable
    assert list(cores.splits()) == splits


def test_other_cores_have_another_key() -> None:
    assert len({Cores(2, 2).key(), Cores(2, 1).key(), Cores(4, 2).key(), Cores(2, 2, 1.5).key()}) == 4
