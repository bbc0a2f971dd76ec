"""Cores are counted as the kernel will grant them."""

from pathlib import Path

import pytest

from batchfleet.embedded.cores import cgroup_quota, usable_cores


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
