"""Keys and tenants: what every store of them promises, on every database."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchfleet.access.keys import DEFAULT_ROLES, ApiKey, Role, WrittenKey, new_key
from batchfleet.access.sql import SqlAccess
from batchfleet.access.store import AccessStore
from batchfleet.errors import InvalidRequestError, StoreUnavailableError
from tests.support.stores import SHARED_KINDS, Bench, open_bench


@pytest.fixture(params=SHARED_KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(request.param, tmp_path) as bench:
        yield bench


@pytest.fixture
def access(bench: Bench) -> Iterator[AccessStore]:
    store = SqlAccess(bench.url, wall=bench.clock)
    yield store
    store.close()


def _make(access: AccessStore, tenant: str = "acme", **changes: object) -> tuple[WrittenKey, ApiKey]:
    written = new_key()
    fields: dict[str, object] = {"tenant": tenant, "name": "laptop", "roles": DEFAULT_ROLES, **changes}
    return written, access.create_key(written, **fields)  # type: ignore[arg-type]


class TestKeys:
    def test_a_key_is_found_as_it_was_made_and_opens(self, access: AccessStore) -> None:
        written, made = _make(access, roles=frozenset({Role.ADMIN}), ttl_s=60.0)

        found = access.find_key(written.id)

        assert found == made
        assert written.opens(made)
        assert not new_key().opens(made)
        assert (made.tenant, made.name, made.roles) == ("acme", "laptop", frozenset({Role.ADMIN}))
        assert (made.revoked_at, made.last_used_at) == (None, None)
        assert made.expires_at == pytest.approx(made.created_at + 60.0)

    def test_the_secret_is_stored_nowhere(self, access: AccessStore, bench: Bench) -> None:
        written, made = _make(access)

        assert written.secret not in repr(made) + repr(written)
        if bench.kind == "sqlite":
            with sqlite3.connect(bench.url.removeprefix("sqlite:///")) as connection:
                dump = "\n".join(connection.iterdump())
            connection.close()
            assert made.digest in dump
            assert written.secret not in dump

    def test_many_keys_are_found_at_once_and_unknown_ids_are_left_out(self, access: AccessStore) -> None:
        made = [_make(access)[1] for _ in range(3)]
        asked = [made[2].id, "0" * 16, made[0].id, "it's no id", made[0].id]

        found = access.find_keys(asked)

        assert {key.id for key in found} == {made[0].id, made[2].id}
        assert access.find_keys([]) == []
        assert access.find_key("0" * 16) is None

    def test_the_newest_key_is_listed_first_and_tenants_apart(self, access: AccessStore, bench: Bench) -> None:
        made = []
        for tenant in ("acme", "other", "acme"):
            made.append(_make(access, tenant)[1])
            bench.clock.advance(1.0)

        assert access.list_keys() == made[::-1]
        assert access.list_keys("acme") == [made[2], made[0]]
        assert access.list_keys("nobody") == []

    def test_revoking_is_for_good_and_keeps_its_first_time(self, access: AccessStore, bench: Bench) -> None:
        written, made = _make(access)

        first = access.revoke_key(written.id)
        bench.clock.advance(60.0)
        again = access.revoke_key(written.id)

        assert first is not None
        assert first.revoked_at is not None
        assert first == again == access.find_key(written.id)
        assert made.usable(made.created_at)
        assert not first.usable(made.created_at)
        assert access.revoke_key("0" * 16) is None

    def test_keys_in_use_are_noted_and_others_are_not(self, access: AccessStore, bench: Bench) -> None:
        used, idle = _make(access)[1], _make(access)[1]
        bench.clock.advance(5.0)

        access.touch_keys([used.id, "0" * 16])
        access.touch_keys([])

        noted = access.find_key(used.id)
        assert noted is not None
        assert noted.last_used_at is not None
        assert noted.last_used_at >= used.created_at
        assert access.find_key(idle.id) == idle

    def test_two_keys_of_one_name_are_two_keys(self, access: AccessStore) -> None:
        _make(access, name="laptop")
        _make(access, name="laptop")

        assert [key.name for key in access.list_keys("acme")] == ["laptop", "laptop"]

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"tenant": ""}, "tenant"),
            ({"tenant": "a b"}, "tenant"),
            ({"tenant": "a" * 65}, "tenant"),
            ({"name": "a\x00b"}, "name"),
            ({"name": "n" * 101}, "name"),
            ({"roles": frozenset()}, "roles"),
        ],
    )
    def test_what_cannot_be_stored_is_refused_by_name(
        self, access: AccessStore, changes: dict[str, object], field: str
    ) -> None:
        with pytest.raises(InvalidRequestError) as refused:
            _make(access, **changes)  # type: ignore[arg-type]

        assert refused.value.field == field
        assert access.list_keys() == []


class TestTenants:
    def test_a_key_makes_its_tenant_once(self, access: AccessStore) -> None:
        assert access.tenant("acme") is None
        _make(access)
        first = access.tenant("acme")
        _make(access)

        assert first is not None
        assert (first.name, first.input_prefixes, first.output_prefixes) == ("acme", (), ())
        assert access.list_tenants() == [first]

    def test_prefixes_are_kept_in_one_form_and_lists_are_changed_apart(self, access: AccessStore) -> None:
        made = access.put_tenant("acme", input_prefixes=["s3://inputs/a", "s3://inputs/a/", "s3://inputs/b/"])
        changed = access.put_tenant("acme", output_prefixes=["s3://outputs"])
        cleared = access.put_tenant("acme", input_prefixes=[])

        assert (made.input_prefixes, made.output_prefixes) == (("s3://inputs/a/", "s3://inputs/b/"), ())
        assert (changed.input_prefixes, changed.output_prefixes) == (made.input_prefixes, ("s3://outputs/",))
        assert (cleared.input_prefixes, cleared.output_prefixes) == ((), ("s3://outputs/",))
        assert access.tenant("acme") == cleared
        assert cleared.created_at == made.created_at

    def test_tenants_are_listed_by_name(self, access: AccessStore) -> None:
        for name in ("b", "B", "a-1"):
            access.put_tenant(name)

        assert [tenant.name for tenant in access.list_tenants()] == ["B", "a-1", "b"]

    @pytest.mark.parametrize("prefix", ["file:///tmp", "s3://", "s3://b/../a", "bucket/x", ""])
    def test_a_prefix_that_is_none_is_refused_by_name(self, access: AccessStore, prefix: str) -> None:
        with pytest.raises(InvalidRequestError) as refused:
            access.put_tenant("acme", input_prefixes=["s3://fine/", prefix])

        assert refused.value.field == "input_prefixes[1]"
        assert access.tenant("acme") is None


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    access = SqlAccess(f"sqlite:///{tmp_path}/missing/x.db")

    with pytest.raises(StoreUnavailableError):
        access.find_key("0" * 16)
