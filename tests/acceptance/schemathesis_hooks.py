"""Loaded by Schemathesis: the document, as somebody would have it who knows which model this fleet serves.

The document itself cannot say what a task takes or which models there are. With that filled in, most of what is made
up is accepted, and the requests get beyond the first check.
"""

import json
from typing import Any

import schemathesis

_NULL = {"type": "null"}


@schemathesis.hook
def before_load_schema(_context: Any, document: dict[str, Any]) -> None:
    """Fills in the model, and what it takes."""
    for name in ("JobBody", "BulkJobBody"):
        members = document["components"]["schemas"][name]["properties"]
        members["model"] = {"enum": ["tiny"]}
        members["version"] = {"enum": ["1", None]}
        members["inputs"]["items"] = {"type": "string"}
        members["parameters"] = {
            "type": ["object", "null"], "properties": {"normalize": {"type": "boolean"}}, "additionalProperties": False,
        }  # fmt: skip
        members["run_at"] = _NULL
        members["callback_url"] = {"enum": ["https://hooks.example/x", None]}
    submit = document["paths"]["/v1/jobs"]["post"]
    # One key with two bodies is refused, rightly (422); the bodies that are made up know nothing of each other.
    submit["parameters"] = [each for each in submit["parameters"] if each["name"] != "Idempotency-Key"]


@schemathesis.hook
def filter_body(_context: Any, body: Any) -> bool:
    """Leaves out bodies with NUL in a text: refused, rightly (400), but no schema can say so of a text anywhere."""
    return "\\u0000" not in json.dumps(body, default=str)
