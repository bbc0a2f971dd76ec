"""The whole benchmark: loop and fleet in turns, on the same texts, variant and cores."""

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from batchfleet.client import Client
from batchfleet.embedded.bench.fleet import BenchFailedError, provenance, run_fleet, vectors
from batchfleet.embedded.bench.loop import BestLoop
from batchfleet.embedded.bench.loop_worker import LoopModel
from batchfleet.embedded.bench.report import Report
from batchfleet.embedded.bench.workload import make_texts
from batchfleet.embedded.cache import cached_demo_model
from batchfleet.embedded.cores import usable_cores
from batchfleet.embedded.session import FleetSession
from batchfleet.embedded.stack import StackInfo
from batchfleet.inference.select import choose_variant
from batchfleet.models.repository import ModelFiles, ModelRepository

Say = Callable[[str], None]

_SUBSET = 600
_WARM_UP = 300
_FIRST_S = 60.0
_COMPARED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """What to measure.

    Attributes:
        rounds: How often loop and fleet take turns.
        url: A fleet that runs already; None starts a fresh one.
        workers: Worker processes of a fresh one; None for one a core.
        postgres: Whether a fresh one keeps its jobs in an embedded Postgres.
    """

    texts: int = 10_000
    rounds: int = 3
    url: str | None = None
    workers: int | None = None
    postgres: bool = False


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The fleet under test, and its processes where they can be seen."""

    client: Client
    info: Callable[[], StackInfo | None]


def run_bench(spec: BenchSpec, say: Say) -> Report:
    """Runs the benchmark.

    Raises:
        BatchfleetError: If the model cannot be had, the fleet fails, or a job does not succeed.
    """
    repository, files = cached_demo_model(say)
    texts = make_texts(spec.texts)
    cores = usable_cores()
    tokenizer = str(files.config.task_options.get("tokenizer", "tokenizer.json"))
    with _fleet(spec, repository, files, say) as fleet:
        # Not what we would choose but what the fleet runs: the loop must run the same.
        first = fleet.client.submit(files.ref.name, texts[:1], wait_s=_FIRST_S)
        how = provenance(fleet.client, first.id)
        if not how:
            raise BenchFailedError(
                f"the first job is {first.status} after {_FIRST_S:.0f} s: {first.error or first.notice}"
            )
        model = LoopModel(files.path, files.config.variant(str(how["variant"])), files.config.limits, tokenizer)
        with BestLoop(model, cores) as loop:
            return _measure(spec, files, texts, cores, fleet, loop, say)


def _measure(
    spec: BenchSpec, files: ModelFiles, texts: Sequence[str], cores: int, fleet: _Fleet, loop: BestLoop, say: Say
) -> Report:
    say(f"looking for the best in-process loop on {min(_SUBSET, len(texts))} texts")
    loop.sweep(texts[:_SUBSET], say)
    say(f"the best loop: {loop.plan}")
    run_fleet(fleet.client, files.ref.name, texts[:_WARM_UP], fleet.info())
    loops, fleets = [], []
    for number in range(spec.rounds):
        loops.append(loop.run(texts))
        fleets.append(run_fleet(fleet.client, files.ref.name, texts, fleet.info()))
        say(
            f"round {number + 1}: loop {loops[-1].texts_per_s:.1f} texts/s, "
            f"fleet {len(texts) / fleets[-1].seconds:.1f} texts/s"
        )
    picked = sorted(random.Random(1).sample(range(len(texts)), min(_COMPARED, len(texts))))  # noqa: S311 - a sample
    ids = [fleets[-1].ids[index] for index in picked]
    how = provenance(fleet.client, ids[0])
    if how.get("variant") != loop.model.variant.name:
        raise BenchFailedError(f"the fleet ran {how.get('variant')}, the loop {loop.model.variant.name}")
    info = fleet.info()
    return Report(
        texts=len(texts),
        mean_tokens=_mean_tokens(files, texts),
        cores=cores,
        workers=sum(name.startswith("worker") for name in info.pids) if info else None,
        loops=loops,
        fleets=fleets,
        cosine=_worst_cosine(vectors(fleet.client, ids), loops[-1].vectors[picked]),
        compared=len(picked),
        how=how,
    )


@contextlib.contextmanager
def _fleet(spec: BenchSpec, repository: ModelRepository, files: ModelFiles, say: Say) -> Iterator[_Fleet]:
    if spec.url is not None:
        with Client(spec.url) as client:
            yield _Fleet(client, lambda: None)
        return
    chosen = choose_variant(files)
    say(f"variant: {chosen.chosen}. {chosen.reason}")
    settings = {
        "BATCHFLEET_MODELS_URL": f"file://{repository.root.resolve()}",
        "BATCHFLEET_WORKER_VARIANT": chosen.chosen,
        "BATCHFLEET_LOG_LEVEL": "warning",
    }
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-bench-") as folder,
        FleetSession(Path(folder), workers=spec.workers, postgres=spec.postgres, environment=settings) as session,
        Client(session.url) as client,
    ):
        say(f"a fresh fleet is ready at {session.url}")
        yield _Fleet(client, session.info)


def _worst_cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float((np.einsum("ij,ij->i", a, b) / norms).min())


def _mean_tokens(files: ModelFiles, texts: Sequence[str]) -> float:
    tokenizer = Tokenizer.from_file(str(files.path / str(files.config.task_options.get("tokenizer", "tokenizer.json"))))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=files.config.limits.max_item_tokens)
    return float(np.mean([len(encoding.ids) for encoding in tokenizer.encode_batch_fast(list(texts))]))
