"""One run of each system: a peer at a setting, or a fleet of ours; the same callers, texts and figures."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from batchfleet.embedded import valkey
from batchfleet.embedded.bench.loop_worker import LoopModel
from batchfleet.embedded.bench.memory import Resident
from batchfleet.embedded.cpu import snapshot, spent
from batchfleet.embedded.session import FleetSession
from batchfleet.embedded.stack import python_environment
from benchmarks.peers.callers import Called, HttpCallers, TaskCallers
from benchmarks.peers.processes import PeerFailedError, Processes, resident, tree
from benchmarks.peers.servers.embed import VARIABLE, Setup
from benchmarks.peers.settings import Peer, Setting

ROOT = Path(__file__).parents[2]
_WARM_UP = 96
_OUTPUT = "sentence_embedding"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    Attributes:
        called: What the callers saw.
        cpu_s: CPU seconds by role, without the callers'.
        memory: Of each process, at its peak.
    """

    called: Called
    cpu_s: Mapping[str, float]
    memory: Sequence[Resident]


@dataclass(frozen=True, slots=True)
class Work:
    """What all systems are given.

    Attributes:
        model: As the best in-process loop loads it.
        budget: Padded tokens of a pass where a handler sorts: the best loop's.
        cores: Worker processes.
    """

    model: LoopModel
    budget: int
    cores: int
    callers: int
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="batchfleet-peers-")))


def run_peer(work: Work, peer: Peer, python: Path, setting: Setting, texts: Sequence[str]) -> Outcome:
    """Starts a peer, warms it up, measures it and stops it.

    Raises:
        PeerFailedError: If it does not start or a request fails.
    """
    with tempfile.TemporaryDirectory(prefix=f"{peer.name}-", dir=work.folder) as name:
        folder = Path(name)
        broker, port = None if peer.route else _broker(folder / "valkey"), valkey.free_port("127.0.0.1")
        environment = _environment(work, setting, port, broker.url if broker else "", folder)
        commands = {"server": _server(peer, python, setting, work.cores, port)}
        if broker:
            commands = {"broker": [list(broker.child(0).command)], **commands}
        log = folder / "log"
        with (
            Processes(commands, environment, log) as processes,
            _callers(peer, python, port, environment, log) as client,
        ):
            try:
                return _measure(processes, client, texts, work.callers)
            except PeerFailedError as error:
                raise PeerFailedError(f"{error}\n{processes.tail()}") from error


def _callers(
    peer: Peer, python: Path, port: int, environment: Mapping[str, str], log: Path
) -> HttpCallers | TaskCallers:
    if peer.route:
        return HttpCallers(
            f"http://127.0.0.1:{port}", peer.route, lambda text: {"text": [text] if peer.listed else text}
        )
    return TaskCallers([str(python), "-m", "benchmarks.peers.servers.submit_celery"], environment, log)


def _measure(processes: Processes, client: HttpCallers | TaskCallers, texts: Sequence[str], callers: int) -> Outcome:
    if isinstance(client, HttpCallers):
        client.await_ready(processes.check)
    client.run(texts[:_WARM_UP], callers)
    before = processes.usage()
    called = client.run(texts, callers)
    after = processes.usage()
    processes.check()
    cpu_s = {role: after.cpu_s[role] - before.cpu_s[role] for role in after.cpu_s}
    return Outcome(called, cpu_s, after.memory)


@contextlib.contextmanager
def fleet(work: Work, *, postgres: bool) -> Iterator[FleetSession]:
    """Starts a fleet of ours with the same build of the model; stops it at the end."""
    settings = {
        "BATCHFLEET_MODELS_URL": f"file://{work.model.path.parents[1].resolve()}",
        "BATCHFLEET_WORKER_VARIANT": work.model.variant.name,
        "BATCHFLEET_LOG_LEVEL": "warning",
    }
    if postgres:  # the user who runs the server where we are root must come through
        work.folder.chmod(work.folder.stat().st_mode | 0o011)
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-", dir=work.folder) as name,
        FleetSession(Path(name), workers=work.cores, postgres=postgres, environment=settings) as session,
    ):
        yield session


def run_fleet(work: Work, texts: Sequence[str], *, postgres: bool) -> Outcome:
    """Does the same with a fleet of ours: each text is a durable job, waited for in its own request."""
    name = work.model.path.parent.name
    with (
        fleet(work, postgres=postgres) as session,
        HttpCallers(session.url, "/v1/jobs?wait=60", lambda text: {"model": name, "inputs": [text]}) as client,
    ):
        client.run(texts[:_WARM_UP], work.callers)
        before = snapshot(session.info())
        called = client.run(texts, work.callers)
        info = session.info()
        cpu_s = {role: value for role, value in spent(before, snapshot(info)).items() if value and role != "client"}
        memory = [resident(stat.pid) for stat in tree(info.pid)]
    return Outcome(called, cpu_s, memory)


def _environment(work: Work, setting: Setting, port: int, broker: str, folder: Path) -> dict[str, str]:
    setup = Setup(
        model=str(work.model.path / work.model.variant.file),
        tokenizer=str(work.model.path / work.model.tokenizer),
        output=_OUTPUT,
        max_tokens=work.model.limits.max_item_tokens,
        budget=work.budget,
        workers=work.cores,
        port=port,
        broker=broker,
        **asdict(setting),
    )
    # A home of its own: what a peer remembers or reports about itself must neither help nor disturb the next run.
    private = {"HOME": str(folder), "BENTOML_HOME": str(folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"}
    threads = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    return {
        **python_environment(os.environ),
        **private,
        **threads,
        "PYTHONPATH": str(ROOT),
        VARIABLE: json.dumps(asdict(setup)),
    }


def _server(peer: Peer, python: Path, setting: Setting, cores: int, port: int) -> list[list[str]]:
    module = f"benchmarks.peers.servers.{peer.module}"
    if peer.name == "bentoml":
        bentoml = [str(python.parent / "bentoml"), "serve", f"{module}:Embed", "--working-dir", str(ROOT)]
        return [[*bentoml, "--host", "127.0.0.1", "--port", str(port)]]
    if peer.route:
        return [[str(python), "-m", module]]
    command = [str(python), "-m", "celery", "-A", module, "worker", "--loglevel", "WARNING", "-O", "fair"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--pool", setting.pool]
    if setting.pool == "solo":
        return [[*command, "--hostname", f"solo{number}"] for number in range(cores)]
    return [[*command, "--concurrency", str(cores)]]


def _broker(folder: Path) -> valkey.EmbeddedValkey:
    found = valkey.prepare(folder)
    if found is None:
        raise PeerFailedError("there is no Valkey for this platform")
    return found
