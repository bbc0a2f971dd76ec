"""Reads a BERT-style encoder: `config.json` and `model.safetensors`, as its authors publish them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from batchfleet.errors import ModelError

Floats: TypeAlias = NDArray[np.float32]
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

WEIGHTS_FILE = "model.safetensors"
ENCODER_CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The fields of `config.json` that shape the graph.

    Attributes:
        hidden_size: Width of a token's vector.
        num_hidden_layers: Number of layers.
        num_attention_heads: Heads; `hidden_size` is a multiple of it.
        intermediate_size: Width inside the feed-forward part.
        max_position_embeddings: Most tokens of one item.
        layer_norm_eps: Epsilon of the layer normalisations.
        vocab_size: Number of token ids.
        model_type: Family; `bert` is the one understood.
        hidden_act: Activation; `gelu` is the one understood.
        position_embedding_type: Positions; `absolute` is the one understood.
    """

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    layer_norm_eps: float
    vocab_size: Size
    model_type: str = "bert"
    hidden_act: str = "gelu"
    position_embedding_type: str = "absolute"


@dataclass(frozen=True, slots=True)
class Encoder:
    """Weights of one encoder.

    Attributes:
        config: Its sizes.
        tensors: Its weights by their published name, float32.
    """

    config: EncoderConfig
    tensors: dict[str, Floats]

    def linear(self, name: str) -> tuple[Floats, Floats]:
        """Returns weight `[in, out]` and bias `[out]` of the layer called `name`.

        Raises:
            ModelError: If the weights have no such layer.
        """
        return self.tensor(f"{name}.weight").T, self.tensor(f"{name}.bias")

    def tensor(self, name: str) -> Floats:
        """Returns one tensor.

        Raises:
            ModelError: If the weights have none of that name.
        """
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"the weights have no tensor {name!r}: not a BERT-style encoder") from None


def read_encoder(folder: Path) -> Encoder:
    """Reads the encoder in `folder`.

    Raises:
        ModelError: If a file is missing or unreadable, or it is an encoder of another kind.
    """
    config = _read_config(folder / ENCODER_CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    # Some exporters prefix every tensor with the model's name.
    return Encoder(config, {name.removeprefix("bert."): array.astype(np.float32) for name, array in tensors.items()})


def _read_config(path: Path) -> EncoderConfig:
    try:
        config = msgspec.json.decode(path.read_bytes(), type=EncoderConfig)
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    understood = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for field, value in understood.items():
        if getattr(config, field) != value:
            raise ModelError(f"{path}: `{field}` is {getattr(config, field)!r}, only {value!r} can be built")
    if config.hidden_size % config.num_attention_heads:
        raise ModelError(f"{path}: `hidden_size` is no multiple of `num_attention_heads`")
    return config
