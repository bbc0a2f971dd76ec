"""Runtime adapter: ONNX Runtime, with its CPU, OpenVINO (plugin) and CUDA providers.

The only module that imports onnxruntime, and it does so when first needed: a process that loads no graph
pays nothing, and an installation without it gets an error that says what to install.
"""

import importlib
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchfleet.errors import ModelError, RuntimeUnavailableError
from batchfleet.foreign import describe
from batchfleet.inference.machine import Cpu, read_cpu
from batchfleet.inference.onnx_binding import BoundRuns
from batchfleet.inference.runtime import RuntimeOptions
from batchfleet.inference.task import Array
from batchfleet.models.config import Variant

_EP_NAMES = {
    "cpu": "CPUExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cuda": "CUDAExecutionProvider",
}

# Both fused kernels are slower than what they replace on the CPU provider (4 x and 2 x on a 32 x 64 pass).
_SLOWER_WHEN_FUSED = ("BiasGeluFusion", "SkipLayerNormFusion")

_QUIET = 3  # log severity: errors only

# What ONNX Runtime and its providers say of memory; they have no exception of their own for it.
_NO_MEMORY = re.compile(
    "failed to allocate|bad_?alloc|bad allocation|out[ _]of[ _](host[ _])?memory|smaller than requested bytes"
    "|cudaerrormemoryallocation|(cublas|cudnn)_status_alloc_failed|allocation_failure|cl_out_of_resources"
)
_OPENVINO_LOCK = threading.Lock()  # registering a provider library is global to the process


class OnnxSession:
    """One loaded graph. ONNX Runtime allows concurrent runs, but a worker has one executing thread.

    Args:
        session: Of onnxruntime.
        variant: What was loaded.
        bind_to: The device whose memory inputs and outputs are bound to; None lets ONNX Runtime copy.
    """

    compiles_per_shape: bool

    def __init__(self, session: Any, variant: Variant, bind_to: str | None = None) -> None:
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]
        self._precision = variant.precision
        self._provider = variant.provider  # compared with what was really got before this object is made
        self.compiles_per_shape = variant.provider == "openvino"
        self._bound = None if bind_to is None else BoundRuns(_onnxruntime(), session, self._outputs, bind_to)

    @property
    def provider(self) -> str:
        """The provider really got."""
        return self._provider

    @property
    def precision(self) -> str:
        """Precision of the arithmetic."""
        return self._precision

    def run(self, feeds: Mapping[str, Array], *, shrink: bool = False) -> dict[str, Array]:
        """Runs one pass and returns all outputs by name; with `shrink`, the arenas are emptied after it.

        Raises:
            RuntimeError: If the session is closed. ONNX Runtime raises its own exceptions for failed passes.
        """
        if self._session is None:
            raise RuntimeError("the session is closed")
        options = self._shrinking() if shrink else None
        if self._bound is not None:
            outputs = self._bound.run(feeds, options)
        else:
            outputs = self._session.run(self._outputs, dict(feeds), options)
        return dict(zip(self._outputs, outputs, strict=True))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Returns whether the error says that memory did not suffice."""
        return isinstance(error, MemoryError) or _NO_MEMORY.search(describe(error).lower()) is not None

    def close(self) -> None:
        """Frees the graph's memory."""
        self._session = self._bound = None

    def _shrinking(self) -> Any:
        """Returns options with which a run ends by giving back what the arenas hold beyond their first chunk."""
        options = _onnxruntime().RunOptions()
        arenas = "cpu:0;gpu:0" if self._provider == "cuda" else "cpu:0"
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", arenas)
        return options


class OnnxRuntime:
    """Loads graphs with ONNX Runtime."""

    def __init__(self, cpu: Cpu | None = None) -> None:
        self._cpu = cpu or read_cpu()

    @property
    def version(self) -> str:
        """Version of onnxruntime, or an empty string where it is not installed."""
        try:
            return str(_onnxruntime().__version__)
        except RuntimeUnavailableError:
            return ""

    def refusal(self, variant: Variant) -> str | None:
        """Returns why this machine cannot run `variant`, or None."""
        if variant.provider not in _EP_NAMES:
            return f"ONNX Runtime's provider {variant.provider!r} is not known here"
        if variant.precision == "int8" and variant.provider == "cpu" and self._cpu.saturates_int8:
            return "this CPU has no VNNI: products of 8-bit weights saturate (a 7-bit variant would not)"
        if variant.precision == "bf16" and not self._cpu.has_bf16:
            return "this CPU has no instructions for bf16"
        try:
            _require_provider(_onnxruntime(), variant.provider)
        except RuntimeUnavailableError as error:
            return str(error)
        return None

    def load(self, model_path: Path, variant: Variant, options: RuntimeOptions) -> OnnxSession:
        """Loads the graph of `variant` from the version's folder `model_path`.

        Raises:
            RuntimeUnavailableError: If onnxruntime or the provider cannot be had, or it fell back.
            ModelError: If the graph cannot be loaded.
        """
        reason = self.refusal(variant)
        if reason is not None:
            raise RuntimeUnavailableError(f"variant {variant.name}: {reason}")
        ort = _onnxruntime()
        path = model_path / variant.file
        try:
            session = _open_session(ort, path, variant, options)
        except Exception as error:  # onnxruntime has a family of exceptions without a public base
            raise ModelError(f"{path}: cannot be loaded on {variant.provider}: {error}") from error
        _check_provider(session, variant)
        return OnnxSession(session, variant, bind_to="cuda" if variant.provider == "cuda" else None)


def _onnxruntime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise RuntimeUnavailableError(
            "onnxruntime is not installed: install batchfleet[cpu], [openvino] or [gpu]"
        ) from error


def _open_session(ort: Any, path: Path, variant: Variant, options: RuntimeOptions) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = _QUIET
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    # Spinning threads take half the machine from whoever else has work, and gain 10 % on an idle one.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    arguments: dict[str, Any] = {}
    if variant.provider == "openvino":
        settings.add_provider_for_devices(_openvino_devices(ort), _openvino_options(variant, options))
    else:
        arguments["providers"] = [_EP_NAMES[variant.provider]]
    if variant.provider == "cpu":
        arguments["disabled_optimizers"] = list(_SLOWER_WHEN_FUSED)
    if variant.provider == "cuda" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    return ort.InferenceSession(str(path), settings, **arguments)


def _openvino_options(variant: Variant, options: RuntimeOptions) -> dict[str, str]:
    hint = "bf16" if variant.precision == "bf16" else "f32"
    device = {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": str(options.threads),  # ONNX Runtime's own thread count is ignored here
        "NUM_STREAMS": "1",
    }
    return {"load_config": json.dumps({"CPU": device})}


def _require_provider(ort: Any, provider: str) -> None:
    """Raises `RuntimeUnavailableError` unless the installed onnxruntime offers `provider` on this machine."""
    if provider == "openvino":
        if not _openvino_devices(ort):
            raise RuntimeUnavailableError("OpenVINO's provider offers no CPU device here (it takes Intel's only)")
    elif _EP_NAMES[provider] not in ort.get_available_providers():
        raise RuntimeUnavailableError(f"the installed onnxruntime has no {_EP_NAMES[provider]}")


def _openvino_devices(ort: Any) -> list[Any]:
    """Returns the CPU device that OpenVINO offers, or none; registers its library once a process."""
    name = _EP_NAMES["openvino"]
    try:
        library = importlib.import_module("onnxruntime_ep_openvino").get_library_path()
    except ImportError as error:
        raise RuntimeUnavailableError(
            "onnxruntime_ep_openvino is not installed: install batchfleet[openvino]"
        ) from error
    with _OPENVINO_LOCK:
        try:
            ort.register_execution_provider_library(name, library)
        except Exception as error:
            if "already" not in str(error):
                raise RuntimeUnavailableError(f"OpenVINO's provider cannot be loaded: {error}") from error
    cpu = ort.OrtHardwareDeviceType.CPU
    return [device for device in ort.get_ep_devices() if device.ep_name == name and device.device.type == cpu][:1]


def _check_provider(session: Any, variant: Variant) -> None:
    """Raises unless the graph really runs where it was asked to: onnxruntime falls back without an error."""
    wanted = _EP_NAMES[variant.provider]
    got = session.get_providers()
    if not got or got[0] != wanted:
        raise RuntimeUnavailableError(f"asked for {wanted}, got {', '.join(got)}")
    nodes = _assigned_nodes(session)
    if nodes and not nodes.get(wanted):
        raise RuntimeUnavailableError(f"{wanted} took no node of the graph: {nodes}")


def _assigned_nodes(session: Any) -> dict[str, int]:
    """Returns how many nodes each provider took; empty where onnxruntime is too old to say."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {}
    return {part.ep_name: len(part.get_nodes()) for part in session.get_provider_graph_assignment_info()}
