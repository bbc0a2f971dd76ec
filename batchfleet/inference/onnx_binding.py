"""Runs of ONNX Runtime with inputs and outputs bound to the device.

Without binding each run allocates its inputs on the device anew. Here the device's buffers are kept by shape and
filled in place; outputs stay on the device until all are there, and are then copied back together. On the CPU this
gains nothing (there is nothing to copy), so only devices with memory of their own are bound.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from batchfleet.inference.task import Array

_KEPT = 64
"""Shapes whose input buffers are kept: a few hundred kilobytes each."""

_Signature: TypeAlias = tuple[tuple[str, tuple[int, ...], str], ...]


class BoundRuns:
    """Runs one session through bindings. Used by one thread at a time.

    Args:
        ort: The onnxruntime module.
        session: Its session.
        outputs: Names of the outputs wanted.
        device: `cuda`, or `cpu` (which gains nothing, and shows that the path works).
        kept: Shapes whose buffers are kept.
    """

    def __init__(self, ort: Any, session: Any, outputs: Sequence[str], device: str, kept: int = _KEPT) -> None:
        self._ort = ort
        self._session = session
        self._outputs = tuple(outputs)
        self._device = device
        self._kept = kept
        self._bound: OrderedDict[_Signature, tuple[Any, dict[str, Any]]] = OrderedDict()

    def run(self, feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        """Runs one pass; returns the outputs in the order of their names, in memory of the host.

        Raises:
            Exception: Whatever ONNX Runtime raises.
        """
        binding, buffers = self._binding_for(feeds)
        for name, array in feeds.items():
            buffers[name].update_inplace(array)
        binding.synchronize_inputs()
        # Bound anew for each run: memory of the run before may still be in a caller's hands.
        binding.clear_binding_outputs()
        for name in self._outputs:
            binding.bind_output(name, self._device)
        self._session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        outputs: list[Array] = binding.copy_outputs_to_cpu()
        return outputs

    def _binding_for(self, feeds: Mapping[str, Array]) -> tuple[Any, dict[str, Any]]:
        signature = tuple((name, array.shape, array.dtype.str) for name, array in sorted(feeds.items()))
        if signature in self._bound:
            self._bound.move_to_end(signature)
            return self._bound[signature]
        binding = self._session.io_binding()
        buffers = {
            name: self._ort.OrtValue.ortvalue_from_numpy(array.copy(), self._device) for name, array in feeds.items()
        }
        for name, buffer in buffers.items():
            binding.bind_ortvalue_input(name, buffer)
        self._bound[signature] = binding, buffers
        if len(self._bound) > self._kept:
            self._bound.popitem(last=False)
        return binding, buffers
