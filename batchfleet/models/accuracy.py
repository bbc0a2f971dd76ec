"""How exact each precision must be, as values that the builder and the serving machine share.

Exactness is the cosine between a variant's output and the float reference's, text by text. *Company* is the
cosine between an item's output alone and in a batch of others: company must not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

COMPANY_FLOOR = 0.99999
"""Lowest cosine allowed between an item's output alone and the same item's output in a batch."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The least accuracy that a precision may have.

    Attributes:
        mean: Lowest mean cosine to the float reference over all texts.
        minimum: Lowest cosine to the float reference of any one text.
        company: Lowest cosine of any one text, alone against in a batch, over the texts that a build is verified on.
        rounding: How many times as far as a task promises an answer in company may be from the one alone, in the rare
            worst of all that is ever served: the kernels of other shapes round elsewhere, and a short significand
            shows it (`docs/decisions/0023`).
    """

    mean: float
    minimum: float
    company: float = COMPANY_FLOOR
    rounding: float = 1.0


FLOORS: Mapping[str, Floor] = MappingProxyType(
    {
        "fp32": Floor(mean=0.99999, minimum=0.9999),
        "bf16": Floor(mean=0.9999, minimum=0.999, rounding=10.0),
        "fp16": Floor(mean=0.9999, minimum=0.999),
        "int8": Floor(mean=0.996, minimum=0.98),
        "int7": Floor(mean=0.996, minimum=0.98),
    }
)
"""Floor of each precision of `batchfleet.models.config.Precision`."""


def least_in_company(promised: float, precision: str) -> float:
    """Returns the agreement of alone with in company under which something is wrong with a served answer.

    Args:
        promised: The least agreement that the task promises (`Task.least_agreement`).
        precision: That of the variant.
    """
    return 1.0 - FLOORS[precision].rounding * (1.0 - promised)
