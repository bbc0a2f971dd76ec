"""`batchfleet bench` refuses what it cannot measure before it starts anything."""

from pathlib import Path

import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from tests.support.models import build_tiny_encoder


@pytest.mark.parametrize("where", [(), ("--url", "http://127.0.0.1:9")])
def test_an_unknown_variant_is_a_wrong_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build_tiny_encoder(
        tmp_path / "batchfleet" / f"models-{builder_key()}", name=DEMO_MODEL.name, version=DEMO_MODEL.version
    )

    assert main(["bench", "--texts", "100", "--variant", "int9", *where]) == Exit.USAGE
    assert "--variant: all-minilm-l6-v2 1 has no variant 'int9' (it has: fp32" in capsys.readouterr().err
