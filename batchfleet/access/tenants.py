"""Tenants: whom jobs belong to, and under which prefixes their objects may lie."""

import re
from dataclasses import dataclass
from typing import Final

DEFAULT_TENANT: Final = "default"
"""Whom jobs belong to where no key is asked for."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One tenant.

    Attributes:
        input_prefixes: `s3://bucket/prefix/` under which an `input_uri` may lie; empty for nowhere.
        output_prefixes: Likewise for `output_uri`.
    """

    name: str
    input_prefixes: tuple[str, ...] = ()
    output_prefixes: tuple[str, ...] = ()
    created_at: float = 0.0


def is_tenant_name(text: str) -> bool:
    """Returns whether a tenant may be called that: 1 to 64 of letters, digits, `.`, `_`, `-`."""
    return _NAME.fullmatch(text) is not None
