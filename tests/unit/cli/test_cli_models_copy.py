"""`batchfleet models copy` publishes a version with other limits, and says what it did."""

import json
from pathlib import Path

import pytest

from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from batchfleet.models.repository import ModelRef, ModelRepository
from tests.support.models import build_tiny_encoder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRepository:
    build_tiny_encoder(tmp_path, hidden=16, positions=128)
    monkeypatch.setenv("BATCHFLEET_MODELS_URL", tmp_path.as_uri())
    return ModelRepository(tmp_path)


def test_limits_are_changed_in_a_new_version(repository: ModelRepository, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "copy", "tiny", "--set", "max_delay_ms=20", "--set", "overlong=error"]) == Exit.OK
    assert capsys.readouterr().out.startswith("tiny@2 is in ")
    assert (
        main(["models", "copy", "tiny", "--version", "1", "--as", "3-old", "--set", "max_item_tokens=9", "--json"]) == 0
    )

    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["keep_their_own_tokens"]) == ("3-old", [])
    second, third = (repository.config(ModelRef("tiny", version)).limits for version in ("2", "3-old"))
    assert (second.max_delay_ms, second.overlong) == (20.0, "error")
    assert (third.max_item_tokens, third.overlong) == (9, "truncate")


@pytest.mark.parametrize("setting", ["max_delay_ms", "max_dely_ms=1", "max_batch_items=many", "max_batch_items=0"])
def test_a_wrong_limit_is_a_wrong_command_line(
    repository: ModelRepository, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "copy", "tiny", "--set", setting]) == Exit.USAGE
    assert setting.partition("=")[0] in capsys.readouterr().err
    assert repository.versions("tiny") == ["1"]


@pytest.mark.usefixtures("repository")
def test_an_unknown_model_is_not_found() -> None:
    assert main(["models", "copy", "nosuch", "--set", "max_delay_ms=20"]) == Exit.NOT_FOUND
