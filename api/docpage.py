"""An OpenAPI document → a page to read, with nothing loaded from elsewhere and no script."""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}h2{font-size:1.1rem;margin:2rem 0 .3rem}code{font-family:ui-monospace,monospace}"
    ".method{display:inline-block;min-width:3.5rem;font-weight:700}table{border-collapse:collapse}"
    "caption{text-align:left;font-weight:600;padding-top:.5rem}"
    "td{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}"
)
_CODE = re.compile(r"`([^`]*)`")
_MANY = "application/x-ndjson"


def page_of(described: Mapping[str, Any]) -> str:
    """Returns a page that lists the operations of an OpenAPI document."""
    title = html.escape(f"{described['info']['title']} {described['info']['version']}")
    schemas = described["components"]["schemas"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
        "<p>The whole description, with the answers' members: <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, methods in described["paths"].items():
        parts += [_operation(path, method, operation, schemas) for method, operation in methods.items()]
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    parameters = (
        (f"<code>{html.escape(each['name'])}</code>", each["in"], _text(each.get("description", "")))
        for each in operation["parameters"]
    )
    answers = ((status, _text(each["description"])) for status, each in operation["responses"].items())
    return (
        f"<h2><span class=method>{method.upper()}</span> <code>{html.escape(path)}</code></h2>"
        f"<p>{_text(operation['summary'])}. {_text(operation.get('description', 'Needs no key.'))}</p>"
        + _table("Parameters", parameters)
        + _body(operation.get("requestBody"), schemas)
        + _table("Answers", answers)
    )


def _body(body: Mapping[str, Any] | None, schemas: Mapping[str, Any]) -> str:
    if body is None:
        return ""
    schema = body["content"]["application/json"]["schema"]
    form = "Body: a JSON object"
    if "anyOf" in schema:
        schema, form = schema["anyOf"][0]["items"]["anyOf"][0], "Body: a JSON array of objects"
        if _MANY in body["content"]:
            form += f", or one object a line ({_MANY})"
    schema = _resolved(schema, schemas)
    required = schema.get("required", ())
    one_of = {name for each in schema.get("oneOf", ()) for name in each["required"]}
    rows = (
        (
            f"<code>{html.escape(name)}</code>",
            html.escape(_type(member, schemas)),
            "required" if name in required else "one of them" if name in one_of else "",
            _text(member.get("description", "")),
        )
        for name, member in schema["properties"].items()
    )
    return _table(form, rows)


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Returns the type in words; that a member may also be null is not worth any."""
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        kinds = [_type(each, schemas) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("format") == "date-time":
        return "time (RFC 3339)"
    if schema.get("type") == "array":
        items = _type(schema.get("items", {}), schemas)
        return "array" if items == "any" else f"array of {items}"
    return str(schema.get("type", "any"))


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else schemas[reference.rpartition("/")[2]]


def _table(caption: str, rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>" if body else ""


def _text(text: str) -> str:
    """Returns a text of the document (Markdown, of which we use code spans only) as HTML."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))
