"""Builds a model from published weights: export, precision, verify, profile, publish.

Everything happens in the repository's staging folder, so that a build that fails leaves nothing behind and one
that succeeds appears whole.
"""

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import onnx

import batchfleet
from batchfleet.build.encoder_graph import OUTPUT, write_encoder
from batchfleet.build.offers import why_skipped
from batchfleet.build.profile import measure_latency
from batchfleet.build.verify import held_out_texts, measure_accuracy, outputs_alone, require_floor
from batchfleet.build.weights import Encoder, read_encoder
from batchfleet.errors import ModelError
from batchfleet.inference.machine import Cpu, read_cpu
from batchfleet.inference.registry import load_executor, load_runtime
from batchfleet.models.config import CONFIG_FILE, Limits, ModelConfig, Precision, Variant, render_config
from batchfleet.models.manifest import MANIFEST_FILE, Accuracy, LatencySample, Manifest, file_digests, render_manifest
from batchfleet.models.repository import ModelFiles, ModelRef, ModelRepository

TOKENIZER_FILE = "tokenizer.json"
REFERENCE: Precision = "fp32"

Progress: TypeAlias = Callable[[str], None]
"""Told in a few words what is being done now."""


def silent(message: str) -> None:
    """The progress callback that shows nothing."""
    del message


def build_encoder_model(
    source_dir: Path,
    repository: ModelRepository,
    name: str,
    version: str,
    *,
    limits: Limits | None = None,
    integer_batch_tokens: int | None = None,
    source: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    progress: Progress = silent,
    cpu: Cpu | None = None,
) -> ModelFiles:
    """Builds an embedding model from a BERT-style encoder and publishes it.

    Args:
        source_dir: Folder with `model.safetensors`, `config.json` and `tokenizer.json`.
        repository: Where to publish.
        name: Name of the model.
        version: Its version; must not exist yet.
        limits: Its limits; `max_item_tokens` is lowered to the positions that the encoder has.
        integer_batch_tokens: `max_batch_tokens` of the INT8 variant; None means that of `limits`.
        source: Where the weights came from, for the manifest.
        inputs: Texts to verify on besides the task's own; None means Python's documentation.
        progress: Told what is being done.
        cpu: The CPU to build for; None means this machine's.

    Raises:
        ModelError: If the source cannot be read, or the version exists.
        AccuracyError: If a variant is under its floor.
    """
    cpu = cpu or read_cpu()
    progress("reading weights")
    encoder = read_encoder(source_dir)
    config = _config(name, version, _fitting(limits or Limits(), encoder), cpu, integer_batch_tokens)
    extra = list(held_out_texts()) if inputs is None else list(inputs)
    ref = ModelRef(name, version)

    def write(folder: Path) -> None:
        _write_files(encoder, source_dir, config, folder, progress)
        digests = file_digests(folder)
        draft = Manifest(files=digests, source=dict(source or {}), build=_build_facts(cpu))
        accuracy, profile = _measure(ModelFiles(ref, folder, config, draft, draft.digest), extra, progress)
        manifest = dataclasses.replace(draft, accuracy=accuracy, profile=profile)
        (folder / MANIFEST_FILE).write_text(render_manifest(manifest), encoding="utf-8")
        progress("publishing")

    return repository.publish(ref, write)


def _fitting(limits: Limits, encoder: Encoder) -> Limits:
    positions = encoder.config.max_position_embeddings
    return dataclasses.replace(limits, max_item_tokens=min(limits.max_item_tokens, positions))


def _config(name: str, version: str, limits: Limits, cpu: Cpu, integer_batch_tokens: int | None) -> ModelConfig:
    integer: Precision = "int7" if cpu.saturates_int8 else "int8"
    return ModelConfig(
        name=name,
        version=version,
        task="embed",
        task_options={"tokenizer": TOKENIZER_FILE, "output": OUTPUT},
        limits=limits,
        variants=(
            _variant(REFERENCE, REFERENCE, "cpu"),
            dataclasses.replace(_variant(integer, integer, "cpu"), max_batch_tokens=integer_batch_tokens),
            # The float graph again: bf16 is what OpenVINO makes of it on CPUs that have the instructions.
            _variant("openvino-bf16", "bf16", "openvino"),
        ),
    )


def _variant(name: str, precision: Precision, provider: str) -> Variant:
    graph = precision if precision in {"int8", "int7"} else REFERENCE
    return Variant(name=name, precision=precision, runtime="onnx", provider=provider, file=f"model.{graph}.onnx")


def _write_files(encoder: Encoder, source_dir: Path, config: ModelConfig, folder: Path, progress: Progress) -> None:
    for variant in config.variants:
        if not (folder / variant.file).exists():
            progress(f"writing the {variant.precision} graph")
            write_encoder(encoder, folder / variant.file, variant.precision)
    try:
        shutil.copyfile(source_dir / TOKENIZER_FILE, folder / TOKENIZER_FILE)
    except OSError as error:
        raise ModelError(f"{source_dir / TOKENIZER_FILE}: cannot be read: {error}") from error
    (folder / CONFIG_FILE).write_text(render_config(config), encoding="utf-8")


def _measure(
    files: ModelFiles, extra: Sequence[str], progress: Progress
) -> tuple[tuple[Accuracy, ...], tuple[LatencySample, ...]]:
    """Verifies and profiles every variant that this machine can run."""
    accuracies: list[Accuracy] = []
    samples: list[LatencySample] = []
    reference = load_executor(files, REFERENCE)
    with closing(reference.executor):
        inputs = [*reference.task.sample_inputs(), *extra]
        progress(f"running the float reference on {len(inputs)} texts")
        expected = outputs_alone(reference, inputs)
    for variant in files.config.variants:
        skipped = why_skipped(variant)
        if skipped is not None:
            progress(f"{variant.name}: {skipped}")
            continue
        model = load_executor(files, variant.name)
        with closing(model.executor):
            alone = expected if variant.name == REFERENCE else outputs_alone(model, inputs)
            accuracy = measure_accuracy(model, inputs, alone, expected)
            require_floor(accuracy, variant.precision)
            progress(f"{variant.name}: {_agreement(accuracy)}")
            accuracies.append(accuracy)
            samples += measure_latency(model)
    return tuple(accuracies), tuple(samples)


def _agreement(accuracy: Accuracy) -> str:
    return (
        f"cosine to float {accuracy.mean_cosine:.5f} on average, {accuracy.min_cosine:.5f} for the worst text "
        "(1 is the same vector)"
    )


def _build_facts(cpu: Cpu) -> dict[str, Any]:
    return {
        "batchfleet": batchfleet.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": load_runtime("onnx").version,
        "cpu": cpu.model,
        "weight_bits": 7 if cpu.saturates_int8 else 8,
    }
