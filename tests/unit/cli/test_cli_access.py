"""Keys, tenants and the schema, on a real database file."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchfleet.access.keys import read_key
from batchfleet.access.sql import SqlAccess
from batchfleet.cli.main import main
from batchfleet.embedded.exits import Exit
from migrations.run import upgrade


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/batchfleet.db"
    upgrade(url)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", url)
    return url


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_key_is_shown_once_and_only_its_digest_is_kept(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--name", "laptop", "--tenant", "acme", "--role", "read"]) == Exit.OK
    shown = capsys.readouterr()
    written = read_key(shown.out.strip())
    assert written is not None
    assert written.secret not in shown.err

    access = SqlAccess(database)
    stored = access.find_key(written.id)
    access.close()
    assert stored is not None
    assert written.opens(stored)
    assert (stored.tenant, stored.name, sorted(stored.roles)) == ("acme", "laptop", ["read"])

    assert main(["keys", "list", "--json"]) == Exit.OK
    text = capsys.readouterr().out
    assert written.secret not in text
    (listed,) = json.loads(text)["keys"]
    assert (listed["id"], listed["usable"]) == (written.id, True)


def test_keys_that_do_not_work_are_listed_only_on_demand(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "create", "--ttl", "3600", "--json"])
    made = said(capsys)
    assert made["expires_at"] > made["created_at"]
    assert made["roles"] == ["read", "submit"]

    assert main(["keys", "revoke", made["key"], "0" * 16]) == Exit.NOT_FOUND  # a whole key is taken for its id
    told = capsys.readouterr()
    assert told.out == f"{made['id']} is revoked\n"
    assert told.err == f"batchfleet: {'0' * 16}: no such key\n"

    main(["keys", "list"])
    assert "no keys that work (1 do not any more: --all)" in capsys.readouterr().out
    main(["keys", "list", "--all", "--json"])
    (key,) = said(capsys)["keys"]
    assert key["revoked_at"]
    assert key["usable"] is False


def test_an_unknown_key_is_not_shown(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "s" * 43
    assert main(["keys", "revoke", f"bf_{'0' * 16}_{secret}", "--json"]) == Exit.NOT_FOUND
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["keys", "create", "--tenant", "a b"], "--tenant: a tenant's name is"),
        (["keys", "create", "--name", "x" * 200], "--name: must be printable"),
        (["keys", "create", "--role", "king"], "--role: 'king' is not one of"),
        (["keys", "create", "--ttl", "0"], "--ttl: 0"),
        (["tenants", "set", "a b"], "NAME: a tenant's name is"),
        (["tenants", "set", "a", "--input-prefix", "http://x"], "--input-prefix: must be s3://"),
    ],
)
def test_what_cannot_be_is_refused_by_the_options_name(
    database: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == Exit.USAGE
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_a_tenants_prefixes_are_replaced_or_left(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["tenants", "set", "acme", "--input-prefix", "s3://incoming/a", "--input-prefix", "s3://incoming/b/", "--json"]
    )
    assert said(capsys)["input_prefixes"] == ["s3://incoming/a/", "s3://incoming/b/"]

    main(["tenants", "set", "acme", "--output-prefix", "s3://outgoing", "--json"])
    changed = said(capsys)
    assert (changed["input_prefixes"], changed["output_prefixes"]) == (
        ["s3://incoming/a/", "s3://incoming/b/"],
        ["s3://outgoing/"],
    )

    main(["tenants", "set", "acme", "--input-prefix", "", "--json"])
    assert said(capsys)["input_prefixes"] == []

    main(["tenants", "list", "--json"])
    assert [tenant["name"] for tenant in said(capsys)["tenants"]] == ["acme"]
    assert main(["tenants", "show", "acme"]) == Exit.OK
    assert "s3://outgoing/" in capsys.readouterr().out
    assert main(["tenants", "show", "nobody", "--json"]) == Exit.NOT_FOUND
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "tenant_not_found"


def test_the_schemas_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.db"
    url = f"sqlite:///{file}"

    assert main(["db", "status", "--database-url", url, "--json"]) == Exit.FAILED
    state = said(capsys)
    assert (state["status"], state["current"]) == ("empty", [])
    assert not file.exists()

    upgrade(url, "0001")
    assert main(["db", "status", "--database-url", url, "--json"]) == Exit.FAILED
    behind = said(capsys)
    assert (behind["status"], behind["current"]) == ("behind", ["0001"])
    assert behind["missing"] == [revision for revision in state["missing"] if revision != "0001"]

    assert main(["db", "upgrade", "--database-url", url, "--json"]) == Exit.OK
    left = said(capsys)["post"]
    assert main(["db", "status", "--database-url", url]) == Exit.OK
    told = f", {len(left)} to apply ({', '.join(left)}) once no older process runs: batchfleet db upgrade --post"
    assert capsys.readouterr().out == f"{url}: current{told if left else ''}\n"

    assert main(["db", "upgrade", "--post", "--database-url", url]) == Exit.OK
    capsys.readouterr()
    assert main(["db", "status", "--database-url", url]) == Exit.OK
    assert capsys.readouterr().out == f"{url}: current\n"


def test_without_a_database_the_one_of_up_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BATCHFLEET_DATABASE_URL", raising=False)
    monkeypatch.setenv("BATCHFLEET_DATA_DIR", str(tmp_path))

    assert main(["keys", "list"]) == Exit.USAGE
    assert "no fleet was run in the data folder" in capsys.readouterr().err

    upgrade(f"sqlite:///{tmp_path}/batchfleet.db")
    assert main(["keys", "list"]) == Exit.OK
    assert capsys.readouterr().out.startswith("no keys;")


def test_a_database_without_schema_is_told_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.db").touch()

    assert main(["keys", "list", "--database-url", f"sqlite:///{tmp_path}/empty.db"]) == Exit.FAILED
    assert "run 'batchfleet db upgrade'" in capsys.readouterr().err
