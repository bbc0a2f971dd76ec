"""The whole benchmark: a fleet, the best loop, a load generator, and the scenarios one after the other."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tokenizers import Tokenizer

from batchfleet.client import Client
from batchfleet.client.client import KEY_VARIABLE
from batchfleet.embedded.bench.bulk import BulkFinding, run_bulk
from batchfleet.embedded.bench.environment import machine_in_words, versions
from batchfleet.embedded.bench.errors import BenchFailedError, UnknownVariantError
from batchfleet.embedded.bench.fleet import provenance
from batchfleet.embedded.bench.generator import Generator
from batchfleet.embedded.bench.http_connection import Target
from batchfleet.embedded.bench.idle import run_idle
from batchfleet.embedded.bench.load import run_load
from batchfleet.embedded.bench.loop import BestLoop
from batchfleet.embedded.bench.loop_worker import LoopModel
from batchfleet.embedded.bench.mixed import run_mixed
from batchfleet.embedded.bench.overload import run_overload
from batchfleet.embedded.bench.report import About, Finding, Report
from batchfleet.embedded.bench.requests import run_requests
from batchfleet.embedded.bench.spec import BenchSpec
from batchfleet.embedded.bench.stage import Say, Stage
from batchfleet.embedded.bench.workload import make_texts, read_texts
from batchfleet.embedded.cache import cached_demo_model
from batchfleet.embedded.cores import usable_cores
from batchfleet.embedded.scratch import scratch_folder
from batchfleet.embedded.session import FleetSession
from batchfleet.embedded.stack import StackInfo
from batchfleet.errors import ModelConfigError
from batchfleet.inference.registry import load_runtime
from batchfleet.inference.select import choose_variant
from batchfleet.models.repository import ModelFiles, ModelRepository

_FIRST_S = 60.0
_RUN: Mapping[str, Callable[[Stage], Finding]] = {
    "bulk": run_bulk,
    "requests": run_requests,
    "idle": run_idle,
    "load": run_load,
    "mixed": run_mixed,
    "overload": run_overload,
}


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The fleet under test, and its processes where they can be seen."""

    url: str
    client: Client
    info: Callable[[], StackInfo | None]


def run_bench(spec: BenchSpec, say: Say) -> Report:
    """Runs the benchmark.

    Raises:
        UnknownVariantError: If the model has no such variant.
        BatchfleetError: If texts or model cannot be had, the fleet fails, or a job does not succeed.
    """
    began = datetime.now(UTC)
    texts = read_texts(spec.texts_file, spec.texts) if spec.texts_file else None
    texts = texts or make_texts(spec.texts, spec.lengths, spec.seed)
    repository, files = cached_demo_model(say)
    _check_variant(spec, files)
    with _fleet(spec, repository, files, say) as fleet:
        how = _first_answer(fleet.client, files, texts[0])
        # Not what we would choose but what the fleet runs: the loop must run the same.
        if spec.variant not in {None, how["variant"]}:
            raise BenchFailedError(f"the fleet runs {how['variant']}, not {spec.variant}")
        variant = files.config.variant(str(how["variant"]))
        model = LoopModel(files.path, variant, files.config.limits, _tokenizer_file(files))
        with BestLoop(model, usable_cores()) as loop, Generator(_target(fleet.url)) as generator:
            stage = Stage(
                spec=spec,
                client=fleet.client,
                model=files.ref.name,
                limits=files.config.limits,
                texts=texts,
                tokens=_tokens(files, texts),
                info=fleet.info,
                loop=loop,
                generator=generator,
                say=say,
            )
            return _measure(stage, how, began)


def _measure(stage: Stage, how: Mapping[str, object], began: datetime) -> Report:
    stage.say("looking for the best in-process loop")
    stage.loop.sweep(stage.texts, stage.say)
    stage.say(f"the best loop: {stage.loop.plan}")
    findings: dict[str, Finding] = {}
    for name in stage.spec.scenarios:
        stage.say(f"--- {name}")
        findings[name] = _RUN[name](stage)
    cosines = [stage.worst_cosine] if stage.compared else []
    bulk = findings.get("bulk")
    if isinstance(bulk, BulkFinding):
        cosines.append(bulk.cosine)
    return Report(
        about=_about(stage, how, began),
        findings=findings,
        cosine=min(cosines, default=None),
        compared=stage.compared + (bulk.compared if isinstance(bulk, BulkFinding) else 0),
    )


def _about(stage: Stage, how: Mapping[str, object], began: datetime) -> About:
    spec, info = stage.spec, stage.info()
    lengths = str(spec.texts_file) if spec.texts_file else f"lognormal:{spec.lengths.mean:g}:{spec.lengths.sigma:g}"
    return About(
        date=f"{began:%Y-%m-%d %H:%M} UTC",
        machine=machine_in_words(),
        cores=usable_cores(),
        workers=sum(name.startswith("worker") for name in info.pids) if info else None,
        database=("postgres" if spec.postgres else "sqlite") if info else None,
        model=stage.model,
        how=how,
        versions=versions(),
        texts=len(stage.texts),
        mean_tokens=sum(stage.tokens) / len(stage.tokens),
        workload={"lengths": lengths, "lanes": dict(spec.lane_mix.shares), "seed": spec.seed},
        loop_plan=str(stage.loop.plan),
    )


@contextlib.contextmanager
def _fleet(spec: BenchSpec, repository: ModelRepository, files: ModelFiles, say: Say) -> Iterator[_Fleet]:
    if spec.url is not None:
        with Client(spec.url) as client:
            yield _Fleet(spec.url, client, lambda: None)
        return
    settings = {
        "BATCHFLEET_MODELS_URL": f"file://{repository.root.resolve()}",
        "BATCHFLEET_WORKER_VARIANT": _variant(spec, files, say),
        "BATCHFLEET_LOG_LEVEL": "warning",
    }
    with (
        scratch_folder("bench") as folder,
        FleetSession(folder, workers=spec.workers, postgres=spec.postgres, environment=settings) as session,
        Client(session.url) as client,
    ):
        say(f"a fresh fleet is ready at {session.url}")
        yield _Fleet(session.url, client, session.info)


def _check_variant(spec: BenchSpec, files: ModelFiles) -> None:
    try:
        if spec.variant is not None:
            files.config.variant(spec.variant)
    except ModelConfigError as error:
        raise UnknownVariantError(str(error)) from None


def _variant(spec: BenchSpec, files: ModelFiles, say: Say) -> str:
    if spec.variant is None:
        chosen = choose_variant(files)
        say(f"variant: {chosen.chosen}. {chosen.reason}")
        return chosen.chosen
    variant = files.config.variant(spec.variant)
    refusal = load_runtime(variant.runtime).refusal(variant)
    if refusal is not None:
        raise BenchFailedError(f"this machine cannot run {variant.name}: {refusal}")
    return variant.name


def _first_answer(client: Client, files: ModelFiles, text: str) -> Mapping[str, object]:
    """Returns how the fleet's first result came about."""
    first = client.submit(files.ref.name, [text], wait_s=_FIRST_S)
    how = provenance(client, first.id)
    if not how:
        raise BenchFailedError(f"the first job is {first.status} after {_FIRST_S:.0f} s: {first.error or first.notice}")
    return how


def _target(url: str) -> Target:
    key = os.environ.get(KEY_VARIABLE)
    return Target.of(url, {"Authorization": f"Bearer {key}"} if key else {})


def _tokenizer_file(files: ModelFiles) -> str:
    return str(files.config.task_options.get("tokenizer", "tokenizer.json"))


def _tokens(files: ModelFiles, texts: Sequence[str]) -> list[int]:
    tokenizer = Tokenizer.from_file(str(files.path / _tokenizer_file(files)))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=files.config.limits.max_item_tokens)
    return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(list(texts))]
