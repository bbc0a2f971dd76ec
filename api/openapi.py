"""The OpenAPI document, made of the structures that also decode and encode; a test holds it to the routes."""

from dataclasses import dataclass
from typing import Any

import msgspec

from api.problems import PROBLEM_TYPE, TABLE, Problem
from api.schemas import (
    BulkAnswer,
    BulkJobBody,
    Health,
    JobBody,
    JobPage,
    Jobs,
    JobView,
    LookupBody,
    ModelList,
    ModelView,
)

_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the surface.

    Attributes:
        name: Its `operationId`, equal to the name of the route's handler.
        answers: Structure (or media type) of each successful status.
        problems: Codes of problems that it can answer besides `internal_error`.
        told: What a status means, where it is not plain.
        query: Names and meanings of the query parameters.
        headers: Names and meanings of request headers.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: dict[int, Any]
    body: Any = None
    problems: tuple[str, ...] = ()
    told: dict[int, str] | None = None
    query: dict[str, str] | None = None
    headers: dict[str, str] | None = None

    @property
    def statuses(self) -> frozenset[int]:
        """The statuses of its problems."""
        return frozenset(TABLE[code].status for code in self.problems)


_WAIT = {"wait": "Seconds (0 to 60) for which the answer may wait for the end of the job."}
_ASKED = ("invalid_request",)
_BODY = (*_ASKED, "malformed_body", "cross_origin", "too_large", "unsupported_media_type")
_STORE = ("overloaded", "store_unavailable", "unavailable")
_MODEL = ("model_not_found", "model_config_invalid")
_NO_RESULT = ("job_failed", "job_cancelled", "job_expired", "result_gone")
_ENDED = "The job has ended; it is shown with its result if that is small."
_NOT_ENDED = "The job is taken and has not ended; `Location` says where to ask, `Retry-After` when."
_REPLAYED = "A repeated request with the same key and body gets the first job, with `Idempotency-Replayed: true`."

OPERATIONS = (
    Operation(
        method="post",
        path="/v1/jobs",
        name="submit_job",
        summary="Submit one job",
        body=JobBody,
        answers={202: JobView, 200: JobView},
        problems=(*_BODY, "unsupported_field", *_MODEL, "idempotency_conflict", *_STORE),
        told={202: _NOT_ENDED, 200: _ENDED},
        query=_WAIT,
        headers={"Idempotency-Key": _REPLAYED},
    ),
    Operation(
        method="post",
        path="/v1/jobs/bulk",
        name="submit_bulk",
        summary="Submit many jobs (JSON array or NDJSON); bad ones do not cost good ones",
        body=list[BulkJobBody],
        answers={202: BulkAnswer},
        problems=(*_BODY, *_STORE),
        told={202: "What became of each job, in order: its `id` and `status`, or its `error`."},
    ),
    Operation(
        method="get",
        path="/v1/jobs",
        name="list_jobs",
        summary="List jobs, newest first",
        answers={200: JobPage},
        problems=(*_ASKED, *_STORE),
        query={
            "status": "States, separated by commas.",
            "model": "Name of a model.",
            "dead_letter": "`true`: only failed jobs that used up their attempts or crashes.",
            "after": "Id of the last job of the page before.",
            "limit": "Jobs of a page, 1 to 1000 (100).",
        },
    ),
    Operation(
        method="post",
        path="/v1/jobs/lookup",
        name="look_up_jobs",
        summary="Show up to 1000 jobs at once",
        body=LookupBody,
        answers={200: Jobs},
        problems=(*_BODY, *_STORE),
    ),
    Operation(
        method="get",
        path="/v1/jobs/{job_id}",
        name="get_job",
        summary="Show a job, after waiting for its end if asked to",
        answers={200: JobView, 304: None},
        problems=(*_ASKED, "job_not_found", *_STORE),
        told={200: "The job; while it has not ended, `Retry-After` says when to ask again.", 304: "Nothing changed."},
        query=_WAIT,
        headers={"If-None-Match": "The ETag of an earlier answer: 304 if nothing changed."},
    ),
    Operation(
        method="get",
        path="/v1/jobs/{job_id}/result",
        name="get_result",
        summary="Fetch the result of a job",
        answers={200: ("application/json", "application/x-npy", "application/msgpack"), 202: JobView},
        problems=(
            *(*_ASKED, "job_not_found", "not_acceptable", "not_representable"),
            *(*_NO_RESULT, "blobs_unavailable", *_STORE),
        ),
        told={200: "The result.", 202: "No result yet, but the job: it has not ended. Does not wait."},
        headers={"Accept": "The form of the result."},
    ),
    Operation(
        method="post",
        path="/v1/jobs/{job_id}/cancel",
        name="cancel_job",
        summary="Cancel a job; one that has ended stays as it is",
        answers={200: JobView},
        problems=(*_ASKED, "cross_origin", "job_not_found", *_STORE),
        told={200: "The job, as it is now."},
    ),
    Operation(
        method="get",
        path="/v1/models",
        name="list_models",
        summary="List models (OpenAI's shape)",
        answers={200: ModelList},
        problems=_ASKED,
    ),
    Operation(
        method="get",
        path="/v1/models/{name}",
        name="get_model",
        summary="Show a model",
        answers={200: ModelView},
        problems=(*_ASKED, *_MODEL),
    ),
    Operation(
        method="get",
        path="/healthz",
        name="healthz",
        summary="Whether the process lives",
        answers={200: dict[str, str]},
    ),
    Operation(
        method="get",
        path="/readyz",
        name="readyz",
        summary="Whether the process can take jobs, and what is wrong",
        answers={200: Health, 503: Health},
        told={200: "Jobs are taken (`ready`, or `degraded`).", 503: "The database cannot be reached: `unavailable`."},
    ),
    Operation(
        method="get", path="/metrics", name="metrics", summary="Prometheus metrics", answers={200: ("text/plain",)}
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        summary="This document",
        answers={200: dict[str, Any]},
    ),
    Operation(method="get", path="/docs", name="docs", summary="This document, to read", answers={200: ("text/html",)}),
)


def document(version: str) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document."""
    schemas, components = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Batchfleet", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components},
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
        components[body.__name__]["required"].append("inputs")  # `newjobs` asks for it, not the structure
    return dict(zip(types, described, strict=True)), components


def _any_json(kind: type) -> dict[str, Any]:
    """`msgspec.Raw` is JSON that we pass through."""
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError(kind)


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
    for status in sorted({*operation.statuses, 500}):
        described["responses"][str(status)] = _problem(status, operation, schemas)
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[str(operation.body)]}}
        if operation.body == list[BulkJobBody]:
            content["application/x-ndjson"] = {"schema": {"type": "string"}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    named = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in operation.path.split("/")
        if part.startswith("{")
    ]
    for place, stated in (("query", operation.query), ("header", operation.headers)):
        for name, text in (stated or {}).items():
            named.append({"name": name, "in": place, "description": text, "schema": {"type": "string"}})
    return named


def _answer(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind is None:
        return {}
    if isinstance(kind, tuple):
        return {"content": {name: {"schema": {}} for name in kind}}
    return {"content": {"application/json": {"schema": schemas[str(kind)]}}}


def _problem(status: int, operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    codes = [code for code in (*operation.problems, "internal_error") if TABLE[code].status == status]
    content = {PROBLEM_TYPE: {"schema": schemas[str(Problem)]}}
    return {"description": ", ".join(f"`{code}`" for code in codes), "content": content}
