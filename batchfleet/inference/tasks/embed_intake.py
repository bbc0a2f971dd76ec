"""Edge half of the `embed` task: the form of its inputs and parameters.

An input is a string, or `{"text": "..."}`. Parameters: `normalize` (default true: vectors of length 1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchfleet.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class EmbedParameters:
    """Parameters of an embedding request.

    Attributes:
        normalize: Whether vectors are scaled to length 1.
    """

    normalize: bool = True


class EmbedIntake:
    """Checks embedding requests."""

    name = "embed"

    def parse_parameters(self, raw: Mapping[str, object]) -> EmbedParameters:
        """Returns the parameters, defaults filled in.

        Raises:
            InvalidRequestError: If a name is unknown or a value wrong.
        """
        for name in raw:
            if name != "normalize":
                raise InvalidRequestError(f"unknown parameter {name!r} of task embed", field=f"parameters.{name}")
        normalize = raw.get("normalize", True)
        if not isinstance(normalize, bool):
            raise InvalidRequestError("must be true or false", field="parameters.normalize")
        return EmbedParameters(normalize=normalize)

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Checks that each input is a text.

        Raises:
            InvalidRequestError: If one is not.
        """
        for index, value in enumerate(inputs):
            # An ASCII string, by far the commonest case, is settled by two cheap looks.
            if type(value) is str and value.isascii():
                continue
            try:
                text_of(value).encode()
            except (TypeError, UnicodeEncodeError) as error:
                field = f"inputs[{index}].text" if isinstance(value, dict) else f"inputs[{index}]"
                raise InvalidRequestError(_complaint(error), field=field) from error


def text_of(value: object) -> str:
    """Returns the text of one input, a string or `{"text": "..."}`.

    Raises:
        TypeError: If the input is neither.
    """
    if isinstance(value, Mapping) and value.keys() == {"text"}:
        value = value["text"]
    if isinstance(value, str):
        return value
    raise TypeError('must be a string or {"text": "..."}')


def _complaint(error: TypeError | UnicodeEncodeError) -> str:
    # A lone surrogate is legal in JSON's escapes, but is no character and cannot be stored or tokenised.
    return str(error) if isinstance(error, TypeError) else "holds a lone surrogate, which is no character"
