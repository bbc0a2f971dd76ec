"""Port: what executes a model's graph.

Adapters are named after their technology and imported by `registry` only. What they owe beyond the
signatures: a provider that was not got is an error, never a slower answer; one thread unless told otherwise;
no busy waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from batchfleet.inference.task import Array
from batchfleet.models.config import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """How a session may use the machine.

    Attributes:
        threads: Threads of one pass. One worker a core with one thread beats few workers with many.
    """

    threads: int = 1


class Session(Protocol):
    """A loaded graph. Used by one thread at a time."""

    @property
    def provider(self) -> str:
        """The provider really got, read back from the runtime: `cpu`, `openvino`, `cuda`, ..."""
        ...

    @property
    def precision(self) -> str:
        """Precision of the arithmetic, as the variant states it."""
        ...

    @property
    def compiles_per_shape(self) -> bool:
        """Whether the first pass of each new shape pays for compilation."""
        ...

    def run(self, feeds: Mapping[str, Array], *, shrink: bool = False) -> dict[str, Array]:
        """Runs one pass and returns all outputs by name.

        Args:
            feeds: The graph's inputs by name.
            shrink: Give memory that this and earlier passes left cached back afterwards, where the runtime can.

        Raises:
            Exception: Whatever the runtime raises; the executor turns it into `PassFailedError`.
        """
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Returns whether this error of `run` says that the device's memory did not suffice."""
        ...

    def close(self) -> None:
        """Frees the graph's memory; a second call does nothing."""
        ...


class Runtime(Protocol):
    """Loads graphs."""

    @property
    def version(self) -> str:
        """Version of the runtime, or an empty string where it is not installed."""
        ...

    def refusal(self, variant: Variant) -> str | None:
        """Returns why this machine cannot run `variant`, in one sentence, or None; cheap, loads no graph."""
        ...

    def load(self, model_path: Path, variant: Variant, options: RuntimeOptions) -> Session:
        """Loads the graph of `variant` from the version's folder `model_path`.

        Raises:
            RuntimeUnavailableError: If the runtime or provider cannot be had, or a silent fall-back occurred.
            ModelError: If the graph cannot be loaded.
        """
        ...
