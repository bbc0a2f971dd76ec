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
        company: Lowest cosine of any one text, alone against in a batch.
    """

    mean: float
    minimum: float
    company: float = COMPANY_FLOOR


FLOORS: Mapping[str, Floor] = MappingProxyType(
    {
        "fp32": Floor(mean=0.99999, minimum=0.9999),
        "bf16": Floor(mean=0.9999, minimum=0.999),
        "fp16": Floor(mean=0.9999, minimum=0.999),
        "int8": Floor(mean=0.996, minimum=0.98),
        "int7": Floor(mean=0.996, minimum=0.98),
    }
)
"""Floor of each precision of `batchfleet.models.config.Precision`."""
