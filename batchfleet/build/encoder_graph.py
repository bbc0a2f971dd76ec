"""Writes a BERT-style encoder as an ONNX graph, straight from its weights.

Inputs `input_ids` and `attention_mask`, int64 `[batch, seq]`; output `sentence_embedding`, float32
`[batch, hidden]`: the mean over real tokens, *not* normalised, since whether it is to be is a matter of each
request. Operators are those with fast kernels on the CPU provider; fused attention and fused skip
normalisations are slower there.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from batchfleet.build.graph import MICROSOFT, GraphWriter
from batchfleet.build.linear import GELU_FLOOR, Fed, FloatLinear, Hints, LinearWriter, PerTokenInt8Linear
from batchfleet.build.weights import Encoder
from batchfleet.models.config import Precision

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
OUTPUT = "sentence_embedding"

_MASKED = -1e4
"""Added to the score of a padding token: exp() of it is exactly 0 beside any real score. It is finite, and small
enough for 16-bit floats, so that a row of padding alone still gives numbers and not NaN."""

_DEVIATIONS = 3.0  # a normalised value rarely leaves this many standard deviations


def write_encoder(encoder: Encoder, path: Path, precision: Precision) -> None:
    """Writes the graph file of one precision.

    Args:
        encoder: The weights.
        path: The file to write.
        precision: `fp32` (also what OpenVINO runs at bf16), `int8`, or `int7` for x86 CPUs without VNNI.

    Raises:
        ModelError: If the weights lack a tensor.
        ValueError: If no graph is written for this precision.
    """
    _EncoderWriter(encoder, _linear_writer(precision)).write(path)


def _linear_writer(precision: Precision) -> LinearWriter:
    if precision == "fp32":
        return FloatLinear()
    if precision in {"int8", "int7"}:
        return PerTokenInt8Linear(weight_bits=int(precision.removeprefix("int")))
    raise ValueError(f"no graph of its own is written for precision {precision}")


class _EncoderWriter:
    """Writes one graph; each method returns the value that it adds."""

    def __init__(self, encoder: Encoder, linears: LinearWriter) -> None:
        self._encoder = encoder
        self._linears = linears
        self._graph = GraphWriter()
        self._heads = encoder.config.num_attention_heads
        self._head_size = encoder.config.hidden_size // self._heads

    def write(self, path: Path) -> None:
        graph, config = self._graph, self._encoder.config
        ids = graph.input(INPUT_IDS, ["batch", "seq"])
        mask = graph.node("Cast", graph.input(ATTENTION_MASK, ["batch", "seq"]), to=TensorProto.FLOAT)
        penalty = self._penalty(mask)
        states, norm = self._embeddings(ids), "embeddings.LayerNorm"
        for layer in range(config.num_hidden_layers):
            name = f"encoder.layer.{layer}"
            states, norm = self._layer(name, states, norm, penalty), f"{name}.output.LayerNorm"
        graph.output(self._mean(states, mask), OUTPUT, ["batch", config.hidden_size])
        graph.save(path, "encoder")

    def _penalty(self, mask: str) -> str:
        """What padding adds to attention scores: `[batch, 1, 1, seq]`, 0 or `_MASKED`."""
        graph = self._graph
        padding = graph.node("Sub", graph.scalar(1.0), mask)
        penalty = graph.node("Mul", padding, graph.scalar(_MASKED))
        return graph.node("Unsqueeze", penalty, graph.integers(1, 2))

    def _embeddings(self, ids: str) -> str:
        graph, encoder = self._graph, self._encoder
        words = graph.constant("words", encoder.tensor("embeddings.word_embeddings.weight"))
        # Items are single texts, all of token type 0: its vector is folded into every position's.
        types = encoder.tensor("embeddings.token_type_embeddings.weight")
        places = encoder.tensor("embeddings.position_embeddings.weight") + types[0]
        shape = graph.node("Shape", ids)
        length = graph.node("Slice", shape, graph.integers(1), graph.integers(2))
        # Axis 0 from 0: position i is token i, whatever the padding behind it.
        zero = graph.integers(0)
        positions = graph.node("Slice", graph.constant("positions", places), zero, length, zero)
        total = graph.node("Add", graph.node("Gather", words, ids, axis=0), positions)
        return self._normalized("embeddings.LayerNorm", total)

    def _layer(self, name: str, states: str, norm: str, penalty: str) -> str:
        """One layer over `states`, which the normalisation called `norm` made."""
        graph, linears = self._graph, self._linears
        attended = self._attention(f"{name}.attention.self", states, norm, penalty)
        projected = self._linear(f"{name}.attention.output.dense", linears.feed(graph, attended))
        norm = f"{name}.attention.output.LayerNorm"
        states = self._normalized(norm, graph.node("Add", projected, states))
        fed = linears.feed(graph, states, self._hints(norm, f"{name}.intermediate.dense"))
        inner = graph.node("Gelu", self._linear(f"{name}.intermediate.dense", fed), domain=MICROSOFT)
        outer = self._linear(f"{name}.output.dense", linears.feed(graph, inner, Hints(floor=GELU_FLOOR)))
        return self._normalized(f"{name}.output.LayerNorm", graph.node("Add", outer, states))

    def _attention(self, name: str, states: str, norm: str, penalty: str) -> str:
        graph = self._graph
        # Quantised once for all three; balanced for the values, whose errors weigh by far the most.
        fed = self._linears.feed(graph, states, self._hints(norm, f"{name}.value"))
        # The division by the root of the head size is folded into the query's weights.
        query = self._split_heads(self._linear(f"{name}.query", fed, scale=self._head_size**-0.5), (0, 2, 1, 3))
        key = self._split_heads(self._linear(f"{name}.key", fed), (0, 2, 3, 1))
        value = self._split_heads(self._linear(f"{name}.value", fed), (0, 2, 1, 3))
        scores = graph.node("Add", graph.node("MatMul", query, key), penalty)
        mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
        merged = graph.node("Transpose", mixed, perm=(0, 2, 1, 3))
        return graph.node("Reshape", merged, graph.integers(0, 0, self._heads * self._head_size))

    def _split_heads(self, value: str, order: tuple[int, ...]) -> str:
        """Reshapes `[batch, seq, hidden]` to `[batch, seq, heads, size]` and transposes to `order`."""
        heads = self._graph.node("Reshape", value, self._graph.integers(0, 0, self._heads, self._head_size))
        return self._graph.node("Transpose", heads, perm=order)

    def _linear(self, name: str, fed: Fed, *, scale: float = 1.0) -> str:
        weight, bias = self._encoder.linear(name)
        factor = np.float32(scale)
        return self._linears.linear(self._graph, fed, name, weight * factor, bias * factor)

    def _hints(self, norm: str, reader: str) -> Hints:
        """What is known of a normalisation's output: gain times a few deviations, plus bias."""
        gain, bias = self._encoder.tensor(f"{norm}.weight"), self._encoder.tensor(f"{norm}.bias")
        weight, _ = self._encoder.linear(reader)
        return Hints(reach=np.abs(gain) * np.float32(_DEVIATIONS) + np.abs(bias), weight=weight)

    def _normalized(self, name: str, value: str) -> str:
        graph, encoder = self._graph, self._encoder
        gain = graph.constant(f"{name}.weight", encoder.tensor(f"{name}.weight"))
        bias = graph.constant(f"{name}.bias", encoder.tensor(f"{name}.bias"))
        epsilon = encoder.config.layer_norm_eps
        return graph.node("LayerNormalization", value, gain, bias, axis=-1, epsilon=epsilon)

    def _mean(self, states: str, mask: str) -> str:
        """The mean over real tokens, `[batch, hidden]`; 0 for a row of padding alone."""
        graph = self._graph
        one = graph.integers(1)
        total = graph.node("MatMul", graph.node("Unsqueeze", mask, one), states)
        count = graph.node("ReduceSum", mask, one, keepdims=1)
        return graph.node("Div", graph.node("Squeeze", total, one), graph.node("Max", count, graph.scalar(1.0)))
