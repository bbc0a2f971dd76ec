"""Linear layers of a graph: float, or INT8 with one scale a token.

Per-token INT8: each token's activations are scaled by their own largest value, so that an item's numbers do not
depend on who shares its pass (a scale per tensor, the stock method, moves them by up to 4 % in cosine).
Activations are u8, weights s8: the one pairing with fast kernels on x86. Before VNNI the sum of two such
products overflows 16 bits; weights of 7 bits keep it inside.

Balance: a few channels of a layer normalisation's output are far larger than the rest and would use up the
levels. They are made smaller before quantising and their weights larger by as much (SmoothQuant's idea, with the
channels' size read off the normalisation's own gain and bias instead of from calibration data). On MiniLM it
halves the error for 1.5 % of the time; nearly all of that is the attention's values.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from batchfleet.build.graph import MICROSOFT, GraphWriter
from batchfleet.build.weights import Floats

WEIGHT_LEVELS = {8: 127, 7: 63}
"""Largest weight magnitude by number of bits."""

_SMALLEST_RANGE = 1e-9  # a token of zeros must not divide by zero

GELU_FLOOR = -0.17
"""GELU is never below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What is known of an input before it is seen.

    Attributes:
        floor: A bound near zero that it never falls below.
        reach: How large each channel gets, `[in]`, in any unit.
        weight: The weight `[in, out]`, among those that read it, that suffers most from coarse levels.
    """

    floor: float | None = None
    reach: Floats | None = None
    weight: Floats | None = None


NOTHING_KNOWN = Hints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """An input that layers read, made ready for them once: `value = (real / balance - floor) / scale + zero point`.

    Attributes:
        value: The float or u8 tensor, `[..., in]`.
        scale: Its scale a token, `[..., 1]`; empty where the value is float.
        zero_point: The u8 level that stands for `floor`.
        floor: What was subtracted before scaling; layers add its share to their bias.
        balance: What each channel was divided by, `[in]`; layers multiply their weights by it.
    """

    value: str
    scale: str = ""
    zero_point: int = 0
    floor: float = 0.0
    balance: Floats | None = None


class LinearWriter(Protocol):
    """Writes linear layers into a graph."""

    def feed(self, graph: GraphWriter, value: str, hints: Hints = NOTHING_KNOWN) -> Fed:
        """Writes what all layers that read `value` `[..., in]` share."""
        ...

    def linear(self, graph: GraphWriter, fed: Fed, name: str, weight: Floats, bias: Floats) -> str:
        """Writes `input @ weight + bias` and returns its value.

        Args:
            graph: The graph.
            fed: What `feed` returned for the input `[..., in]`.
            name: Unique name of the layer.
            weight: `[in, out]`.
            bias: `[out]`.
        """
        ...


class FloatLinear:
    """Float32 layers."""

    def feed(self, graph: GraphWriter, value: str, hints: Hints = NOTHING_KNOWN) -> Fed:
        """Returns the value itself."""
        del graph, hints
        return Fed(value=value)

    def linear(self, graph: GraphWriter, fed: Fed, name: str, weight: Floats, bias: Floats) -> str:
        """Writes a product and a sum."""
        product = graph.node("MatMul", fed.value, graph.constant(f"{name}.weight", weight))
        return graph.node("Add", product, graph.constant(f"{name}.bias", bias))


class PerTokenInt8Linear:
    """INT8 layers with one activation scale a token and one weight scale an output channel."""

    def __init__(self, weight_bits: int = 8) -> None:
        self._levels = WEIGHT_LEVELS[weight_bits]

    def feed(self, graph: GraphWriter, value: str, hints: Hints = NOTHING_KNOWN) -> Fed:
        """Quantises `value` `[batch, seq, in]`, token by token, to u8.

        Without a floor the levels are symmetric about zero. With one they span floor to maximum, twice as fine
        for what is mostly positive; the shift by a constant costs nothing, since it ends up in the bias.
        """
        balance = _balance(hints)
        if balance is not None:
            value = graph.node("Mul", value, graph.constant(f"{value}.balance", 1 / balance))
        if hints.floor is not None:
            shifted = graph.node("Sub", value, graph.scalar(hints.floor))
            levels, scale = _quantized(graph, shifted, _highest(graph, shifted), steps=255, zero_point=0)
            return Fed(value=levels, scale=scale, floor=hints.floor, balance=balance)
        lowest = graph.node("Neg", graph.node("ReduceMin", value, graph.integers(-1), keepdims=1))
        reach = graph.node("Max", _highest(graph, value), lowest)
        levels, scale = _quantized(graph, value, reach, steps=127, zero_point=128)
        return Fed(value=levels, scale=scale, zero_point=128, balance=balance)

    def linear(self, graph: GraphWriter, fed: Fed, name: str, weight: Floats, bias: Floats) -> str:
        """Writes an integer product, scaled back to float, and a sum."""
        if fed.balance is not None:
            weight = weight * fed.balance[:, None]
        integers, scales = quantize_weight(weight, self._levels)
        product = graph.node(
            "MatMulIntegerToFloat",
            fed.value,
            graph.constant(f"{name}.weight", integers),
            graph.scalar(1.0),
            graph.constant(f"{name}.scale", scales),
            _zero_point(graph, fed.zero_point),
            domain=MICROSOFT,
        )
        scaled = graph.node("Mul", product, fed.scale)
        # (q + floor) @ W = q @ W + floor * the sums of W's columns, with W as the integers have it.
        shift = fed.floor * integers.sum(axis=0, dtype=np.int64) * scales
        return graph.node("Add", scaled, graph.constant(f"{name}.bias", (bias + shift).astype(np.float32)))


def _balance(hints: Hints) -> Floats | None:
    """Returns what to divide each channel by: the geometric middle between activations' and weights' sizes."""
    if hints.reach is None or hints.weight is None:
        return None
    weights = np.abs(hints.weight).max(axis=1)
    ratio = np.maximum(hints.reach, _SMALLEST_RANGE) / np.maximum(weights, _SMALLEST_RANGE)
    balance: Floats = np.sqrt(ratio).astype(np.float32)
    return balance


def _highest(graph: GraphWriter, value: str) -> str:
    return graph.node("ReduceMax", value, graph.integers(-1), keepdims=1)


def _quantized(graph: GraphWriter, value: str, reach: str, *, steps: int, zero_point: int) -> tuple[str, str]:
    """Returns `value` in u8 and its scale a token, where `reach` `[..., 1]` is `steps` levels from the zero point."""
    safe = graph.node("Max", reach, graph.scalar(_SMALLEST_RANGE))
    scale = graph.node("Mul", safe, graph.scalar(1 / steps))
    # One row a token lets the operator take one scale a row, which saves a division over the whole tensor.
    rows = graph.node("Flatten", value, axis=2)
    scales = graph.node("Reshape", scale, graph.integers(-1))
    level = graph.constant(f"zero_points_{zero_point}", np.array([zero_point], np.uint8))
    zero_points = graph.node("Expand", level, graph.node("Shape", scales))
    levels = graph.node("QuantizeLinear", rows, scales, zero_points, axis=0)
    return graph.node("Reshape", levels, graph.node("Shape", value)), scale


def quantize_weight(weight: Floats, levels: int) -> tuple[NDArray[np.int8], Floats]:
    """Returns `weight` `[in, out]` as int8 and the scale `[out]` of each output channel, symmetric about zero."""
    reach = np.maximum(np.abs(weight).max(axis=0), _SMALLEST_RANGE)
    scales = (reach / levels).astype(np.float32)
    integers = np.clip(np.rint(weight / scales), -levels, levels).astype(np.int8)
    return integers, scales


def _zero_point(graph: GraphWriter, level: int) -> str:
    return graph.constant(f"zero_point_{level}", np.array(level, np.uint8))
