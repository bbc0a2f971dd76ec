"""The same work on other systems and on a fleet of ours, beside the best in-process loop, in one run.

`python benchmarks/peers/run.py --help`; what it does and how to read it is in README.md beside it.
"""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchfleet.embedded.bench.loop import BestLoop, LoopRun
from batchfleet.embedded.bench.loop_worker import LoopModel
from batchfleet.embedded.bench.workload import make_texts
from batchfleet.embedded.cache import cached_demo_model
from batchfleet.embedded.cores import usable_cores
from batchfleet.errors import BatchfleetError
from batchfleet.inference.registry import load_runtime
from batchfleet.models.repository import ModelFiles
from benchmarks.peers.environments import NotInstalledError, environment
from benchmarks.peers.processes import PeerFailedError
from benchmarks.peers.report import Row, row, table
from benchmarks.peers.settings import AS_IT_IS, BEST, NAIVE, PEERS, PLAIN, Peer, Setting, best_of, candidates, finals
from benchmarks.peers.systems import Outcome, Work, run_fleet, run_peer

_ONE_BY_ONE_BUDGET = 256
Runs = list[tuple[Outcome, float]]
_OURS = ("batchfleet", "batchfleet, Postgres")


def say(text: str) -> None:
    """Tells how far we are; results alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True)
class Found:
    """What became of one peer.

    Attributes:
        rates: Texts a second by setting, from the sweep.
        failed: Why a setting or the whole peer could not be measured.
        runs: Final runs by label, each with the loop's texts a second in the same round.
    """

    python: Path
    rates: dict[Setting, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, Setting] = field(default_factory=dict)
    runs: dict[str, Runs] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it. Returns 0 if all vectors agree, 1 if one does not, 2 where there is nothing to run."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # what runs is stopped on the way out
    try:
        _, files = cached_demo_model(say)
        model = loop_model(files, options.variant)
    except BatchfleetError as error:
        say(f"no model: {error}")
        return 2
    cores = usable_cores()
    texts = make_texts(options.texts)
    found, missing = install(options.peers)
    with BestLoop(model, cores) as loop:
        say(f"looking for the best in-process loop of {model.variant.name} on {cores} core(s)")
        loop.sweep(texts, say)
        work = Work(model, loop.plan.budget or _ONE_BY_ONE_BUDGET, cores, options.callers)
        try:
            for peer, one in found.items():
                sweep(work, peer, one, texts[: options.sweep_texts])
            rows = measure(work, loop, found, texts, options)
        finally:
            shutil.rmtree(work.folder, ignore_errors=True)
        plan = str(loop.plan)
    about = {"variant": model.variant.name, "cores": cores, "loop": plan, "texts": len(texts)}
    tell(rows, found, {**about, "not installed": missing} if missing else about, as_json=options.json)
    return 0 if all(row.ok for row in rows) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    known = {peer.name: peer for peer in PEERS}
    parser = argparse.ArgumentParser(description="Compare a fleet with other systems, on one model and machine.")
    parser.add_argument("--peers", default=",".join(known), help="some of %(default)s, or none")
    parser.add_argument("--texts", type=_positive, default=2_000, help="texts of a final run (%(default)s)")
    parser.add_argument("--sweep-texts", type=_positive, default=300, help="texts of each run of a sweep (%(default)s)")
    parser.add_argument("--naive-texts", type=_positive, default=500, help="texts at the naive setting (%(default)s)")
    parser.add_argument("--rounds", type=_positive, default=3, help="how often all take turns (%(default)s)")
    parser.add_argument("--callers", type=_positive, default=64, help="requests outstanding at any time (%(default)s)")
    parser.add_argument("--variant", help="build of the model on ONNX Runtime's CPU provider (the INT8 one)")
    parser.add_argument("--postgres", action="store_true", help="a fleet over an embedded Postgres as well")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    names = [] if options.peers == "none" else [name.strip() for name in options.peers.split(",")]
    for name in names:
        if name not in known:
            parser.error(f"{name!r} is none of {', '.join(known)}")
    options.peers = [known[name] for name in names]
    return options


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def loop_model(files: ModelFiles, name: str | None) -> LoopModel:
    """Returns the build that all run: the INT8 one that this CPU computes rightly, unless one is named."""
    usable = [
        variant
        for variant in files.config.variants
        if variant.provider == "cpu" and load_runtime(variant.runtime).refusal(variant) is None
    ]
    named = [variant for variant in usable if variant.name == name or (name is None and variant.precision != "fp32")]
    if not named:
        raise BatchfleetError(f"no such build on this CPU; there are {', '.join(one.name for one in usable)}")
    return LoopModel(files.path, named[0], files.config.limits, str(files.config.task_options["tokenizer"]))


def install(peers: Sequence[Peer]) -> tuple[dict[Peer, Found], dict[str, str]]:
    """Returns the peers that can be had here, and why the others cannot."""
    found, missing = {}, {}
    for peer in peers:
        try:
            found[peer] = Found(environment(peer.name, say) / "bin" / "python")
        except NotInstalledError as error:
            say(f"{peer.name} cannot be installed: {error}")
            missing[peer.name] = str(error)
    return found, missing


def sweep(work: Work, peer: Peer, found: Found, texts: Sequence[str]) -> None:
    """Tries a peer's settings stage by stage and notes which to measure in full."""
    best = peer.naive
    for changes in (AS_IT_IS, *peer.stages):
        for setting in candidates(best, changes, found.rates):
            try:
                outcome = run_peer(work, peer, found.python, setting, texts)
            except PeerFailedError as error:
                say(f"  {peer.name:15}  failed  {setting}: {error}")
                found.failed[str(setting)] = str(error).partition("\n")[0]
                continue
            found.rates[setting] = len(texts) / outcome.called.seconds
            say(f"  {peer.name:15} {found.rates[setting]:7.1f}  {setting}")
        best = best_of(found.rates) if found.rates else best
    if found.rates:
        found.chosen = finals(peer, found.rates)


def measure(
    work: Work, loop: BestLoop, found: Mapping[Peer, Found], texts: Sequence[str], options: argparse.Namespace
) -> list[Row]:
    """Lets all take turns, round by round; what is not a peer's best runs once, the naive settings on fewer texts."""
    ours: dict[str, Runs] = {name: [] for name in _OURS[: 1 + options.postgres]}
    for number in range(options.rounds):
        beside = loop.run(texts)
        for name, runs in ours.items():
            runs.append((run_fleet(work, texts, postgres=name == _OURS[1]), beside.texts_per_s))
        for peer, one in found.items():
            for label in (BEST, PLAIN) if number == 0 else (BEST,):
                _final(work, peer, one, label, texts, beside)
        say(f"round {number + 1} of {options.rounds} done: loop {beside.texts_per_s:.1f} texts/s")
    few = loop.run(texts[: options.naive_texts])
    for peer, one in found.items():
        _final(work, peer, one, NAIVE, texts[: options.naive_texts], few)
    return _rows(ours, found, beside.vectors)


def _final(work: Work, peer: Peer, one: Found, label: str, texts: Sequence[str], beside: LoopRun) -> None:
    if label not in one.chosen:
        return
    setting = one.chosen[label]
    try:
        outcome = run_peer(work, peer, one.python, setting, texts)
    except PeerFailedError as error:
        say(f"{peer.name} failed at {setting}: {error}")
        one.failed[f"{label}: {setting}"] = str(error).partition("\n")[0]
    else:
        one.runs.setdefault(label, []).append((outcome, beside.texts_per_s))


def _rows(ours: Mapping[str, Runs], found: Mapping[Peer, Found], vectors: NDArray[np.float32]) -> list[Row]:
    rows = [row(name, "", "one durable job a text, ?wait", runs, vectors) for name, runs in ours.items()]
    for peer, one in found.items():
        for label, runs in one.runs.items():
            rows.append(row(peer.name, label, str(one.chosen[label]), runs, vectors))
    return rows


def tell(rows: Sequence[Row], found: Mapping[Peer, Found], about: Mapping[str, object], *, as_json: bool) -> None:
    """Prints the results."""
    failed = {peer.name: one.failed for peer, one in found.items() if one.failed}
    if as_json:
        sweeps = {
            peer.name: {str(key): round(rate, 1) for key, rate in one.rates.items()} for peer, one in found.items()
        }
        print(
            json.dumps({**about, "rows": [row.to_json() for row in rows], "sweeps": sweeps, "failed": failed}, indent=2)
        )
        return
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(table(rows))
    for name, settings in failed.items():
        for setting, why in settings.items():
            print(f"failed: {name} ({setting}): {why}")


if __name__ == "__main__":  # the loop's processes import this module again
    sys.exit(main())
