"""What ONNX Runtime itself says of memory is recognised, and what it caches can be had back."""

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx import TensorProto, helper

from batchfleet.inference.onnx_runtime import OnnxSession
from batchfleet.models.config import Variant


def grows(cells: int) -> OnnxSession:
    """Returns a session whose pass needs `cells` floats for each cell of its input `[rows, length]`."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["one"]),
        helper.make_node("Expand", ["one", "shape"], ["many"]),
        helper.make_node("Neg", ["many"], ["negative"]),
        helper.make_node("ReduceMax", ["negative", "inner"], ["y"], keepdims=0),
    ]
    constants = [
        helper.make_tensor("last", TensorProto.INT64, [1], [2]),
        helper.make_tensor("shape", TensorProto.INT64, [3], [1, 1, cells]),
        helper.make_tensor("inner", TensorProto.INT64, [2], [1, 2]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows"])
    graph = helper.make_graph(nodes, "grows", [x], [y], constants)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return OnnxSession(session, Variant(name="fp32", file="x", runtime="onnx", provider="cpu", precision="fp32"))


def test_an_allocation_that_the_machine_refuses_is_out_of_memory() -> None:
    session = grows(10**13)

    with pytest.raises(Exception, match="allocate") as caught:
        session.run({"x": np.ones((2, 2), np.float32)})

    assert session.is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        "std::bad_alloc",
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=x ; expr=cudaMalloc((void**)&p, size);",
        "Available memory of 1048576 is smaller than requested bytes of 4194304",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
        "[GPU] clEnqueueMapBuffer, error code: -4 CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "Exception from src/inference: [GPU] CL_OUT_OF_RESOURCES",
    ],
)
def test_what_providers_say_of_memory_is_known(said: str) -> None:
    assert grows(1).is_out_of_memory(RuntimeError(said))


@pytest.mark.parametrize("said", ["Got invalid dimensions for input", "CUDA failure 700: an illegal memory access"])
def test_other_errors_are_not_of_memory(said: str) -> None:
    assert not grows(1).is_out_of_memory(RuntimeError(said))


def test_a_pass_that_shrinks_gives_back_what_earlier_ones_left_cached() -> None:
    session, process = grows(10_000), psutil.Process()
    session.run({"x": np.ones((1, 1), np.float32)})
    before = process.memory_info().rss
    session.run({"x": np.ones((10, 200), np.float32)})
    cached = process.memory_info().rss - before

    session.run({"x": np.ones((1, 1), np.float32)}, shrink=True)

    assert cached > 60 << 20
    assert process.memory_info().rss - before < cached / 2
