"""What runs the pages of the documentation: one fleet for those that start none of their own, and the places they name.

The pages are spread over a few test files, so that they can be run beside each other: each process of the tests has
its own ports, folders and servers, which stand in for those that the pages name.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from batchfleet.build.demo_model import DEMO_MODEL
from batchfleet.build.key import builder_key
from batchfleet.embedded.session import FleetSession
from tests.support.docpages import ROOT, blocks_of, fleet_of, pages
from tests.support.docsession import Session, reader_environment
from tests.support.models import build_tiny_encoder, write_tiny_source
from tests.support.postgres import PostgresServer, _binaries
from tests.support.s3servers import ACCESS_KEY, SECRET_KEY, S3Server
from tests.support.servers import ValkeyServer, free_port

RUN = frozenset({"sh", "bash", "console", "python"})
PAGES = [page for page in pages() if any(block.language in RUN and not block.not_run for block in blocks_of(page))]
OPERATING = ("docs/how-to/operate.md", "docs/how-to/secure.md", "docs/how-to/choose-a-database.md")
FLEETS = ("docs/how-to/results-in-s3.md", "docs/how-to/receive-webhooks.md", "docs/how-to/run-on-several-machines.md")
OTHERS = tuple(page for page in PAGES if page not in {*OPERATING, *FLEETS})

RunPage: TypeAlias = Callable[[str], None]


@pytest.fixture(scope="session")
def doc_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the demo model is there already: a tiny one under its name."""
    folder = tmp_path_factory.mktemp("cache")
    build_tiny_encoder(
        folder / "batchfleet" / f"models-{builder_key()}", name=DEMO_MODEL.name, version=DEMO_MODEL.version
    )
    return folder


@pytest.fixture(scope="module")
def doc_fleet(tmp_path_factory: pytest.TempPathFactory, doc_cache: Path) -> Iterator[FleetSession]:
    """The fleet that most pages talk to."""
    folder = tmp_path_factory.mktemp("fleet")
    environment = {"XDG_CACHE_HOME": str(doc_cache), "BATCHFLEET_WORKER_VARIANT": "fp32"}
    with FleetSession(folder, workers=1, environment=environment, options=("--model", "demo")) as session:
        yield session


@pytest.fixture
def run_page(tmp_path: Path, doc_cache: Path, valkey: ValkeyServer, request: pytest.FixtureRequest) -> RunPage:
    """Runs all examples of a page, as it stands."""

    def run(page: str) -> None:
        blocks = [block for block in blocks_of(page) if block.language in RUN]
        environment = {**reader_environment(tmp_path, doc_cache), **_fleet_environment(page, request)}
        text = "".join(block.text for block in blocks if block.not_run is None)
        places = {"redis://broker.example:6379/0": valkey.url, **_server_places(text, request)}
        if "db.example" in text:  # the programs that fit the server
            environment["PATH"] = f"{_binaries()}{os.pathsep}{environment['PATH']}"
        address = environment["BATCHFLEET_URL"].removeprefix("http://")
        places |= dict.fromkeys(("127.0.0.1:8080", "localhost:8080"), address)
        places |= {"9480": str(free_port()), "/srv/batchfleet": str(tmp_path / "srv")}
        with Session(_reader_folder(tmp_path), environment, places) as session:
            for block in blocks:
                session.run(block)

    return run


def _reader_folder(folder: Path) -> Path:
    """Makes the reader's folder: it looks like a checkout with its virtual environment, and holds a checkpoint."""
    work = folder / "work"
    (work / "my-encoder").mkdir(parents=True)
    for name in (".venv", "deploy"):
        (work / name).symlink_to(ROOT / name)
    write_tiny_source(work / "my-encoder", layers=1, hidden=16, positions=512, seed=0)
    return work


def _server_places(text: str, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Returns what a page calls the servers that it needs, and what they are called here."""
    places = {}
    if "db.example" in text:
        postgres: PostgresServer = request.getfixturevalue("own_postgres")
        if "CREATE ROLE" not in text:
            postgres.execute("CREATE ROLE batchfleet LOGIN")
            postgres.execute("CREATE DATABASE batchfleet OWNER batchfleet")
        places["db.example"] = f"127.0.0.1:{postgres.port}"
    if "s3.example" in text:
        s3: S3Server = request.getfixturevalue("own_nanio")
        places |= {"http://s3.example:9000": s3.url, "EXAMPLEKEY": ACCESS_KEY, "example-secret": SECRET_KEY}
    return places


def _fleet_environment(page: str, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Returns the settings by which a page finds its fleet: the one that runs already, or a free port for its own."""
    if fleet_of(page) == "own":
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        return {"BATCHFLEET_URL": url, "BATCHFLEET_API_PORT": str(port), "BATCHFLEET_UP_WORKERS": "1"}
    fleet: FleetSession = request.getfixturevalue("doc_fleet")
    return {"BATCHFLEET_URL": fleet.url, "BATCHFLEET_DATA_DIR": fleet.info().data_dir}
