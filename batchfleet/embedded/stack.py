"""The parts of a fleet on one machine: which processes, with which settings, stopped in which order.

::

    <data_dir>/
      batchfleet.db     the truth
      blobs/ models/    large results, the model repository
      state/ metrics/   journals and measurements, shared metrics of the running processes
      valkey/ run/      the doorbell, pid files
      postgres/         the truth instead, with --postgres
      lock stack.json   who runs here, and where it answers
"""

import contextlib
import json
import os
import site
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import batchfleet
from batchfleet.embedded.child import ChildSpec
from batchfleet.embedded.devices import device_for
from batchfleet.embedded.names import worker_names
from batchfleet.embedded.postgres import EmbeddedPostgres, prepare_postgres
from batchfleet.embedded.valkey import EmbeddedValkey, free_port, prepare
from batchfleet.errors import BatchfleetError
from batchfleet.settings import Settings

_WORKERS, _SCHEDULER, _API, _VALKEY, _POSTGRES = range(5)
"""Order of stopping: workers drain first, while the API still answers and the doorbell still rings; the truth last."""

_STOP_S = 10.0
_API_STOP_S = 25.0
"""It lets running requests end for 20 s."""
_DRAIN_EXTRA_S = 5.0
"""A worker settles and hands back after its drain time; only then is it stuck."""


class PortInUseError(BatchfleetError):
    """Another program listens on the port asked for."""

    code = "port_in_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """What to run.

    Attributes:
        data_dir: Holds everything of the fleet; made if missing.
        port: 0 takes a free one.
        workers: Worker processes.
        threads: Threads of their passes, where that is to be stated.
        devices: GPUs that they get, one each in turn.
        postgres: Whether the truth lies in an embedded Postgres instead of a SQLite file.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    threads: int | None = None
    devices: tuple[str, ...] = ()
    postgres: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A fleet whose parts are laid out; nothing of it runs yet.

    Attributes:
        environment: Settings of all parts, as environment variables on top of ours.
        valkey: The doorbell, or None where there is none to start.
        postgres: The database, or None where there is none to start.
    """

    spec: StackSpec
    port: int
    environment: Mapping[str, str]
    valkey: EmbeddedValkey | None
    postgres: EmbeddedPostgres | None = None

    @property
    def url(self) -> str:
        """Where the API answers, as seen from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.spec.host, self.spec.host)  # noqa: S104 - compared only
        return f"http://{host}:{self.port}"

    @property
    def settings(self) -> Settings:
        """The settings that all parts will read."""
        prefix = "BATCHFLEET_"
        ours = {name.removeprefix(prefix).lower(): value for name, value in self.environment.items()}
        return Settings(**{name: value for name, value in ours.items() if name in Settings.model_fields})  # type: ignore[arg-type]

    def children(self) -> list[ChildSpec]:
        """Returns all processes."""
        drain_s = self.settings.drain_s + _DRAIN_EXTRA_S
        specs = [self._ours("api", "api", _API, stop_s=_API_STOP_S), self._ours("scheduler", "scheduler", _SCHEDULER)]
        for slot, name in enumerate(worker_names(self.spec.workers)):
            own = {"BATCHFLEET_WORKER_NAME": name, **self._threads(), **device_for(slot, self.spec.devices)}
            specs.append(self._ours(f"worker-{slot}", "workers", _WORKERS, stop_s=drain_s, extra=own))
        if self.valkey is not None:
            specs.append(self.valkey.child(_VALKEY))
        if self.postgres is not None:
            specs.append(self.postgres.child(_POSTGRES))
        return specs

    def _threads(self) -> dict[str, str]:
        return {} if self.spec.threads is None else {"BATCHFLEET_WORKER_THREADS": str(self.spec.threads)}

    def _ours(
        self, name: str, module: str, stage: int, *, stop_s: float = _STOP_S, extra: Mapping[str, str] | None = None
    ) -> ChildSpec:
        return ChildSpec(
            name=name,
            # -P: a folder called `api` where the user stands must not be taken for ours.
            command=(sys.executable, "-P", "-m", module),
            environment={**python_environment(), **self.environment, **(extra or {})},
            stage=stage,
            stop_s=stop_s,
        )


def lay_out(spec: StackSpec, environ: Mapping[str, str] = os.environ) -> Stack:
    """Makes the folders, takes a port and writes the doorbell's configuration.

    Settings of the environment are respected (a Postgres, a broker or a model repository of the user's own);
    whatever it leaves open lives in the data folder.

    Raises:
        PortInUseError: If the port is taken.
        PostgresServerError: If an embedded Postgres was asked for and cannot be run.
        BatchfleetError: If the folder's name cannot be part of a URL.
    """
    data_dir = spec.data_dir.resolve()
    if set(str(data_dir)) & set("?#%\n"):
        raise BatchfleetError(f"the data folder's path must not hold any of ? # %: {data_dir}")
    for folder in ("blobs", "models", "state", "metrics", "run"):
        (data_dir / folder).mkdir(parents=True, exist_ok=True)
    _keep_private(data_dir)
    _forget_metrics(data_dir / "metrics")
    own_broker = "BATCHFLEET_BROKER_URL" in environ
    valkey = None if own_broker else prepare(data_dir / "valkey")
    port = _take_port(spec.host, spec.port)
    postgres = prepare_postgres(data_dir / "postgres", _processes(spec)) if spec.postgres else None
    defaults = {
        "BATCHFLEET_DATABASE_URL": postgres.url if postgres else f"sqlite:///{data_dir}/batchfleet.db",
        "BATCHFLEET_BROKER_URL": valkey.url if valkey else "none",
        "BATCHFLEET_BLOB_URL": f"file://{data_dir}/blobs",
        "BATCHFLEET_MODELS_URL": f"file://{data_dir}/models",
        "BATCHFLEET_STATE_DIR": f"{data_dir}/state",
        "BATCHFLEET_METRICS_DIR": f"{data_dir}/metrics",
    }
    given = {name: value for name, value in environ.items() if name in defaults}
    listen = {"BATCHFLEET_API_HOST": spec.host, "BATCHFLEET_API_PORT": str(port)}
    environment = {**defaults, **given, **listen}
    return Stack(spec=spec, port=port, environment=environment, valkey=valkey, postgres=postgres)


def python_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns our environment, such that a child finds the same packages as we do and threads stay few."""
    root = str(Path(batchfleet.__file__).resolve().parent.parent)
    path = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if root not in (*site.getsitepackages(), site.getusersitepackages(), *path):
        path.insert(0, root)  # run from a checkout that is not installed
    tuned = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    joined = {"PYTHONPATH": os.pathsep.join(path)} if path else {}
    return {**tuned, **environ, **joined}


@dataclass(frozen=True, slots=True, kw_only=True)
class StackInfo:
    """A running fleet as `stack.json` tells of it.

    Attributes:
        pid: The supervisor's.
        pids: Those of its children, by name.
        restarts: How often a child was started again.
        workers: How many workers there should be.
    """

    url: str
    pid: int
    data_dir: str
    pids: dict[str, int]
    restarts: int = 0
    workers: int = 0

    def write(self) -> None:
        """Publishes it, whole or not at all."""
        path = Path(self.data_dir) / "stack.json"
        draft = path.with_suffix(".tmp")
        draft.write_text(self.to_json() + "\n", encoding="utf-8")
        draft.replace(path)

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, data_dir: Path) -> Self | None:
        """Returns what the fleet on this folder published, or None where none runs."""
        try:
            return cls.parse((data_dir / "stack.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the JSON of `to_json`."""
        return cls(**json.loads(text))

    @staticmethod
    def remove(data_dir: Path) -> None:
        """Says that nothing runs on this folder any more."""
        (data_dir / "stack.json").unlink(missing_ok=True)


def _processes(spec: StackSpec) -> int:
    """Returns how many processes talk to the database: API and scheduler, and of each worker its keeper as well."""
    return 2 + 2 * spec.workers


def _take_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if port == 0:
        return free_port(host)
    try:
        with socket.create_server((host, port), family=family):
            return port
    except OSError as error:
        raise PortInUseError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _keep_private(data_dir: Path) -> None:
    """Closes to other users what an earlier version left open to them: jobs, results, secrets of webhooks."""
    modes = dict.fromkeys(("blobs", "state", "metrics", "run"), 448)
    modes |= {f"batchfleet.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", ".lock")}
    for name, mode in modes.items():
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another user's: he decides
            (data_dir / name).chmod(mode)


def _forget_metrics(folder: Path) -> None:
    """Counters of the fleet that ran here before would be added to ours."""
    for path in folder.glob("*.db"):
        path.unlink(missing_ok=True)
