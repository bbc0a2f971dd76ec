"""The edge half of a task: what an API process checks of a request, with neither tokenizer nor runtime.

`intake_for("embed").check_inputs([...])` costs well under a microsecond an input and loads no model.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from batchfleet.errors import ModelConfigError
from batchfleet.inference.tasks.embed_intake import EmbedIntake

P_co = TypeVar("P_co", bound=Hashable, covariant=True)


class Intake(Protocol[P_co]):
    """What a task asks of a request before anything is loaded or stored."""

    @property
    def name(self) -> str:
        """Name of the task, as in `model.toml`."""
        ...

    def parse_parameters(self, raw: Mapping[str, object]) -> P_co:
        """Returns the request's parameters as a frozen, hashable value, defaults filled in.

        Raises:
            InvalidRequestError: If a name is unknown or a value wrong; `field` is `parameters.<name>`.
        """
        ...

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Checks the form of all inputs of one job.

        Raises:
            InvalidRequestError: If one is wrong; `field` is `inputs[<index>]`, or a path below it.
        """
        ...


_INTAKES: Mapping[str, Intake[Hashable]] = {"embed": EmbedIntake()}


def intake_for(task: str) -> Intake[Hashable]:
    """Returns the edge half of the task called `task`.

    Raises:
        ModelConfigError: If no such task exists.
    """
    try:
        return _INTAKES[task]
    except KeyError:
        raise ModelConfigError(f"unknown task {task!r} (there are: {', '.join(sorted(_INTAKES))})") from None
