"""The written graph computes what a BERT encoder is defined to compute, whatever else shares the pass."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from batchfleet.build.encoder_graph import write_encoder
from batchfleet.build.weights import Encoder, read_encoder
from batchfleet.errors import ModelError
from batchfleet.inference.machine import Cpu, read_cpu
from batchfleet.inference.onnx_runtime import OnnxRuntime, OnnxSession
from batchfleet.inference.runtime import RuntimeOptions
from batchfleet.models.config import Precision, Variant
from tests.support.models import VOCABULARY, write_tiny_source

# The runtime refuses int8 graphs where products saturate; what does not depend on their values is checked there, too.
WITH_VNNI = Cpu(machine="x86_64", model="any", flags=frozenset({"avx512_vnni"}))
TOLERANCE = {"fp32": 1e-5, "int8": 0.06, "int7": 0.12}
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int7")
EXACT = [each for each in PRECISIONS if each != "int8" or not read_cpu().saturates_int8]

erf = np.vectorize(math.erf)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_tiny_source(folder, layers=2, hidden=32, positions=64, seed=3)
    return folder


def session_of(source: Path, folder: Path, precision: Precision) -> OnnxSession:
    write_encoder(read_encoder(source), folder / "model.onnx", precision)
    variant = Variant(name="v", precision=precision, runtime="onnx", provider="cpu", file="model.onnx")
    return OnnxRuntime(WITH_VNNI).load(folder, variant, RuntimeOptions())


def embed(session: OnnxSession, rows: list[NDArray[np.int64]], length: int) -> NDArray[np.float32]:
    ids = np.zeros((len(rows), length), np.int64)
    mask = np.zeros((len(rows), length), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    output: NDArray[np.float32] = session.run({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]
    return output


def random_rows(lengths: list[int]) -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    return [rng.integers(4, len(VOCABULARY), length) for length in lengths]


def defined(encoder: Encoder, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """BERT as its paper defines it, one item, in float64: mean of the last layer's states."""
    config, heads = encoder.config, encoder.config.num_attention_heads

    def tensor(name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = encoder.tensor(name).astype(np.float64)
        return values

    def linear(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = x @ tensor(f"{name}.weight").T + tensor(f"{name}.bias")
        return values

    def norm(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.layer_norm_eps)
        values: NDArray[np.float64] = scaled * tensor(f"{name}.weight") + tensor(f"{name}.bias")
        return values

    def split(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x.reshape(len(ids), heads, -1).transpose(1, 0, 2)

    x = tensor("embeddings.word_embeddings.weight")[ids]
    x = x + tensor("embeddings.position_embeddings.weight")[np.arange(len(ids))]
    x = norm("embeddings.LayerNorm", x + tensor("embeddings.token_type_embeddings.weight")[0])
    for layer in range(config.num_hidden_layers):
        prefix = f"encoder.layer.{layer}"
        query, key, value = (split(linear(f"{prefix}.attention.self.{n}", x)) for n in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value).transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(f"{prefix}.attention.output.LayerNorm", x + linear(f"{prefix}.attention.output.dense", mixed))
        inner = linear(f"{prefix}.intermediate.dense", x)
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(f"{prefix}.output.LayerNorm", x + linear(f"{prefix}.output.dense", inner))
    mean: NDArray[np.float64] = x.mean(0)
    return mean


@pytest.mark.parametrize("precision", EXACT)
def test_the_graph_computes_the_definition(source: Path, tmp_path: Path, precision: Precision) -> None:
    session = session_of(source, tmp_path, precision)
    rows = random_rows([1, 2, 9, 31, 64])

    outputs = embed(session, rows, 64)

    encoder = read_encoder(source)
    for row, output in zip(rows, outputs, strict=True):
        np.testing.assert_allclose(output, defined(encoder, row), atol=TOLERANCE[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_company_and_padding_do_not_show(source: Path, tmp_path: Path, precision: Precision) -> None:
    session = session_of(source, tmp_path, precision)
    rows = random_rows([5, 64, 1, 17])

    together = embed(session, rows, 64)

    for row, output in zip(rows, together, strict=True):
        np.testing.assert_allclose(embed(session, [row], len(row))[0], output, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_row_of_padding_alone_is_a_number(source: Path, tmp_path: Path, precision: Precision) -> None:
    """Fixed shapes add such rows; NaN in one would spread through shared kernels and alarms."""
    session = session_of(source, tmp_path, precision)

    output = embed(session, [*random_rows([5]), np.array([], np.int64)], 8)

    assert output[1].tolist() == [0.0] * 32


def test_an_unwritten_precision_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bf16"):
        write_encoder(read_encoder(source), tmp_path / "model.onnx", "bf16")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "gpt2"),
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("num_attention_heads", 5),
        ("hidden_size", 0),
        ("hidden_size", "32"),
    ],
)
def test_an_encoder_of_another_kind_is_refused_by_field(tmp_path: Path, field: str, value: object) -> None:
    write_tiny_source(tmp_path, layers=1, hidden=32, positions=8, seed=0)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))

    with pytest.raises(ModelError, match=field):
        read_encoder(tmp_path)


def test_missing_weights_are_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        read_encoder(tmp_path)
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        read_encoder(tmp_path)
    encoder = read_encoder(source)
    with pytest.raises(ModelError, match=r"'pooler\.dense\.weight'"):
        encoder.linear("pooler.dense")
