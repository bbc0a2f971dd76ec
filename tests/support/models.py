"""A tiny random encoder with a tokenizer of its own, so that every test can use a real model.

    ref = build_tiny_encoder(tmp_path / "models")
    files = ModelRepository(tmp_path / "models").open(ref)
    model = load_executor(files, INTEGER)

A word of `tiny_text` is one token; any other text is cut into letters. Two tokens ([CLS], [SEP]) frame each item.
"""

import atexit
import json
import random
import shutil
import string
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from batchfleet.build.pipeline import build_encoder_model
from batchfleet.inference.machine import read_cpu
from batchfleet.models.config import Limits, Precision
from batchfleet.models.repository import ModelRef, ModelRepository

TINY_NAME = "tiny"
INTEGER: Precision = "int7" if read_cpu().saturates_int8 else "int8"
"""Name and precision of the quantised variant that is built for this machine."""

TINY_LIMITS = Limits(max_batch_items=32, max_batch_tokens=4096, max_item_tokens=1024)

FRAME_TOKENS = 2
_NOUNS = "air box cat day ear fig gem hat ice jam key log map net oak pen rug sun tea urn van web yak zoo"
WORDS = tuple(_NOUNS.split())

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_LETTERS = string.ascii_lowercase + string.digits + ".,:;!?'-+*/_(){}[]<>=@#%&\"$"
VOCABULARY = (*_SPECIAL, *WORDS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS))


def build_tiny_encoder(
    root: Path,
    *,
    name: str = TINY_NAME,
    version: str = "1",
    layers: int = 1,
    hidden: int = 32,
    positions: int = 1024,
    seed: int = 0,
    limits: Limits = TINY_LIMITS,
) -> ModelRef:
    """Publishes a random encoder in the repository at `root`, with variants `fp32` and `INTEGER`.

    Building one measures it, which takes a second or two: a process does that once for each, and copies it then.

    Args:
        root: Folder of the repository.
        name: Name of the model.
        version: Its version.
        layers: Number of layers.
        hidden: Width of its vectors, a multiple of 4.
        positions: Most tokens of one item; `limits.max_item_tokens` is lowered to it.
        seed: Same seed, same weights.
        limits: Limits of the model.
    """
    built, ref = _built(name, version, layers, hidden, positions, seed, limits)
    shutil.copytree(built, root, dirs_exist_ok=True)
    return ref


@cache
def _built(
    name: str, version: str, layers: int, hidden: int, positions: int, seed: int, limits: Limits
) -> tuple[Path, ModelRef]:
    """Returns a repository that holds the model and nothing else; it ends with the process."""
    root = Path(tempfile.mkdtemp(prefix="batchfleet-tiny-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    source = root / ".tiny-source" / f"{name}-{version}"
    source.mkdir(parents=True)
    write_tiny_source(source, layers=layers, hidden=hidden, positions=positions, seed=seed)
    published = build_encoder_model(
        source, ModelRepository(root), name, version, limits=limits, inputs=(), source={"random_seed": seed}
    )
    return root, published.ref


def tiny_text(tokens: int, seed: int = 0) -> str:
    """Returns a text of exactly `tokens` tokens, frame included (so at least 2)."""
    words = random.Random(seed).choices(WORDS, k=tokens - FRAME_TOKENS)
    return " ".join(words)


def write_tiny_source(folder: Path, *, layers: int, hidden: int, positions: int, seed: int) -> None:
    """Writes `model.safetensors`, `config.json` and `tokenizer.json` of a random encoder."""
    config = {
        "model_type": "bert",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 2 * hidden,
        "max_position_embeddings": positions,
        "layer_norm_eps": 1e-12,
        "vocab_size": len(VOCABULARY),
        "hidden_act": "gelu",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(_random_tensors(layers, hidden, positions, seed), folder / "model.safetensors")
    _tokenizer().save(str(folder / "tokenizer.json"))


def _random_tensors(layers: int, hidden: int, positions: int, seed: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        tensors[f"{name}.weight"] = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.1, outputs).astype(np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = rng.uniform(0.8, 1.2, hidden).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.1, hidden).astype(np.float32)

    rows = {"word": len(VOCABULARY), "position": positions, "token_type": 2}
    for kind, count in rows.items():
        tensors[f"embeddings.{kind}_embeddings.weight"] = rng.normal(0, 1, (count, hidden)).astype(np.float32)
    norm("embeddings.LayerNorm")
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{prefix}.attention.self.{part}", hidden, hidden)
        linear(f"{prefix}.attention.output.dense", hidden, hidden)
        norm(f"{prefix}.attention.output.LayerNorm")
        linear(f"{prefix}.intermediate.dense", 2 * hidden, hidden)
        linear(f"{prefix}.output.dense", hidden, 2 * hidden)
        norm(f"{prefix}.output.LayerNorm")
    return tensors


def _tokenizer() -> Tokenizer:
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return tokenizer
