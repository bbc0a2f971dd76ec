"""The OpenAPI document, made of the structures that also decode and encode; a test holds it to the routes."""

from typing import Any

import msgspec

from api.operations import OPERATIONS, PATH_PARAMETERS, Operation, Parameter
from api.problems import PROBLEM_TYPE, TABLE, Problem
from api.schemas import BulkJobBody, JobBody

_REF = "#/components/schemas/{name}"
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer bf_…`"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "`X-API-Key: bf_…`"},
}
_LINKS = {
    each.name: {"operationId": each.name, "parameters": {"job_id": "$response.body#/id"}}
    for each in OPERATIONS
    if "{job_id}" in each.path
}
"""What can be done with a job that an answer shows."""


def document(version: str, *, keys_required: bool = False, longest_wait_s: float = 60.0) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document.

    Args:
        version: Of Batchfleet.
        keys_required: Whether requests need a key here, or may have one.
        longest_wait_s: The largest `wait`.
    """
    schemas, components = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = _described(operation, schemas)
        for parameter in described["parameters"]:
            if parameter["name"] == "wait":
                parameter["schema"]["maximum"] = longest_wait_s
        if operation.role is not None:
            anyone: list[dict[str, Any]] = [] if keys_required else [{}]
            described["security"] = [*anyone, *({name: []} for name in _SCHEMES)]
            described["description"] = f"A key needs the role `{operation.role}`."
        paths.setdefault(operation.path, {})[operation.method] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Batchfleet", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
    }


def _schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the schema of each structure of the operations, by its type's text, and what they refer to."""
    types: dict[str, Any] = {str(Problem): Problem}
    for operation in OPERATIONS:
        for kind in (operation.body, *operation.answers.values()):
            if kind is not None and not isinstance(kind, tuple):
                types[str(kind)] = kind
    described, components = msgspec.json.schema_components(
        list(types.values()), schema_hook=_any_json, ref_template=_REF
    )
    for body in (JobBody, BulkJobBody):
        # `newjobs` asks for one of them, not the structure.
        components[body.__name__]["oneOf"] = [
            {"required": ["inputs"], "properties": {"input_uri": {"type": "null"}}},
            {"required": ["input_uri"], "properties": {"input_uri": {"type": "string"}, "inputs": False}},
        ]
    schemas = dict(zip(types, map(_portable, described), strict=True))
    many = schemas[str(list[BulkJobBody])]
    anything = {"description": "Is no reason to refuse the others: it is answered by an `error` of its own."}
    one = {"type": "object", "description": "One job, or the first of several lines, sent as NDJSON."}
    several = {**many, "minItems": 1, "items": {"anyOf": [many["items"], anything]}}
    schemas[str(list[BulkJobBody])] = {"anyOf": [several, one]}
    return schemas, _portable(components)


def _any_json(kind: type) -> dict[str, Any]:
    """`msgspec.Raw` is JSON that we pass through."""
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError(kind)


def _portable(schema: Any) -> Any:
    """Returns a schema whose patterns are JSON Schema's, which knows no end of a text but `$`."""
    if isinstance(schema, dict):
        return {
            name: value.replace(r"\Z", "$") if name == "pattern" and isinstance(value, str) else _portable(value)
            for name, value in schema.items()
        }
    return [_portable(each) for each in schema] if isinstance(schema, list) else schema


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": {
            str(status): {"description": (operation.told or {}).get(status, "OK"), **_answer(kind, schemas)}
            for status, kind in operation.answers.items()
        },
    }
    for status in operation.links:
        described["responses"][str(status)]["links"] = _LINKS
    for status in sorted(operation.statuses):
        problem = _problem(status, operation, schemas)
        known = described["responses"].setdefault(str(status), problem)
        known["content"] = {**known["content"], **problem["content"]}
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[str(operation.body)]}}
        if operation.body == list[BulkJobBody]:
            content["application/x-ndjson"] = {"schema": {"type": "string"}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    named = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": PATH_PARAMETERS[part[1:-1]]}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    places: tuple[tuple[str, dict[str, Parameter]], ...] = (
        ("query", operation.query or {}),
        ("header", operation.headers or {}),
    )
    for place, stated in places:
        for name, said in stated.items():
            named.append({"name": name, "in": place, "description": said.told, "schema": dict(said.schema)})
    return named


def _answer(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind is None:
        return {}
    if isinstance(kind, tuple):
        return {"content": {name: {"schema": {}} for name in kind}}
    return {"content": {"application/json": {"schema": schemas[str(kind)]}}}


def _problem(status: int, operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    codes = [code for code in operation.codes if TABLE[code].status == status]
    content = {PROBLEM_TYPE: {"schema": schemas[str(Problem)]}}
    return {"description": ", ".join(f"`{code}`" for code in codes), "content": content}
