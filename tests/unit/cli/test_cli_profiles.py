"""`batchfleet models profile` shows what the fleet has learned, from the database."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.batching.ceilings import Ceilings
from batchfleet.batching.cost import ShapeCost
from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from batchfleet.profiles.port import Lesson, ProfileKey, ProfileStore, Rate
from batchfleet.profiles.sql import SqlProfiles
from tests.support.stores import sqlite_url

KEY = ProfileKey("tiny", "2", "int8", "cpu/Xeon/1 thread")


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProfileStore]:
    url = sqlite_url(tmp_path)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", url)
    store = SqlProfiles(url)
    yield store
    store.close()


def _teach(profiles: ProfileStore) -> None:
    costs = (ShapeCost(1, 16, 0.002, 3.0), ShapeCost(8, 16, 0.004, 2.0), ShapeCost(1, 256, 0.0305, 1.0))
    ceilings = Ceilings().lowered(512, 64, profiles.load(KEY).now)
    profiles.tell(KEY, Lesson(costs, ceilings, Rate(500.0, 20_000.0, 2.0)))
    profiles.tell(ProfileKey("tiny", "1", "int8", "cpu/Xeon/1 thread"), Lesson())


def test_costs_ceilings_and_rate_are_told_by_device(profiles: ProfileStore, capsys: pytest.CaptureFixture[str]) -> None:
    _teach(profiles)

    assert main(["models", "profile", "tiny", "--version", "2"]) == Exit.OK

    head, table, *rows, ceiling = capsys.readouterr().out.splitlines()
    assert head.startswith("tiny/2 int8 on cpu/Xeon/1 thread: 250 items a second of device time, told ")
    assert table.split("  ")[0] == "LENGTH"
    assert [row.split() for row in rows] == [["16", "2.0", "(3)", "4.0", "(2)"], ["256", "30.5", "(1)"]]
    assert ceiling == "from length 512 on, memory holds 32 rows"


def test_as_json_all_versions_are_told(profiles: ProfileStore, capsys: pytest.CaptureFixture[str]) -> None:
    _teach(profiles)

    assert main(["models", "profile", "tiny", "--json"]) == Exit.OK

    old, new = json.loads(capsys.readouterr().out)["profiles"]
    assert (old["version"], old["costs"], old["rate"]["items_per_s"]) == ("1", [], None)
    assert (new["variant"], new["device"], new["rate"]["items_per_s"]) == ("int8", "cpu/Xeon/1 thread", 250.0)
    assert new["costs"][0] == {"rows": 1, "length": 16, "seconds": 0.002, "passes": 3.0}
    assert new["ceilings"] == [{"length": 512, "rows": 32}]


def test_a_model_that_nobody_ran_is_said_to_be_unknown(
    profiles: ProfileStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "profile", "tiny", "--version", "3"]) == Exit.NOT_FOUND
    assert "no worker has run tiny 3 yet" in capsys.readouterr().err
    assert main(["models", "profile", "tiny", "--json"]) == Exit.NOT_FOUND
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "model_not_found"
