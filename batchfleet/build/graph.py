"""A small writer of ONNX graphs: names values, keeps initializers, returns what the next node needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # read by every onnxruntime that the package admits
MICROSOFT = "com.microsoft"


class GraphWriter:
    """Collects nodes. A *value* is the name of a tensor in the graph."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dims: Sequence[str | int]) -> str:
        """Adds an int64 graph input and returns its value."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, dims))
        return name

    def output(self, value: str, name: str, dims: Sequence[str | int]) -> None:
        """Makes `value` a float graph output called `name`."""
        self.node("Identity", value, output=name)
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Returns the value of a constant; a name used before must mean the same array."""
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def scalar(self, number: float) -> str:
        """Returns the value of a float constant."""
        return self.constant(f"scalar_{number!r}", np.array(number, np.float32))

    def integers(self, *numbers: int) -> str:
        """Returns the value of a constant int64 vector, as shapes and axes want it."""
        return self.constant("integers_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def node(self, operator: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output and returns its value; an empty input is one left out."""
        value = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(operator, inputs, [value], name=f"node_{value}", domain=domain, **attributes)
        )
        return value

    def save(self, path: Path, name: str) -> None:
        """Writes the graph as an ONNX file.

        Raises:
            onnx.checker.ValidationError: If the graph is malformed.
        """
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, list(self._initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="batchfleet")
        onnx.checker.check_model(model)
        onnx.save(model, str(path))
