"""The pages on HTTP and on errors say what the code does: all of it, and nothing else."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from api.bodies import JSON_TYPES, NDJSON_TYPES
from api.operations import OPERATIONS
from api.problems import TABLE, JobFailure
from api.schemas import BulkEntry, BulkFailure, BulkJobBody, JobView, ModelLimits
from batchfleet.errors import BatchfleetError
from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.retry import RETRYABLE

DOCS = Path(__file__).parents[3] / "docs" / "reference"
ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")
HTTP = (DOCS / "http.md").read_text(encoding="utf-8")
EVERYWHERE = {401, 403, 421, 429, 500, 503}
"""Said once, at the top."""
PROVENANCE = {
    "model_digest", "variant", "precision", "runtime", "provider", "batch", "pass", "batch_items", "padded_length",
    "released", "worker", "boot", "attempt",
}  # fmt: skip
REQUESTS, JOBS = ERRORS.split("## Jobs:")


def _rows(text: str) -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE)
    return {code: [cell.strip() for cell in rest.split("|")] for code, rest in rows}


def test_each_code_of_a_problem_is_explained_with_its_status() -> None:
    documented = {code: int(cells[0]) for code, cells in _rows(REQUESTS).items()}

    assert documented == {code: row.status for code, row in TABLE.items()}


def test_each_code_of_the_core_is_explained() -> None:
    def codes(kind: type[BatchfleetError]) -> set[str]:
        own = {kind.code} if kind.__module__ == "batchfleet.errors" else set()
        return own.union(*(codes(child) for child in kind.__subclasses__()))

    assert codes(BatchfleetError) <= set(_rows(REQUESTS))


def test_each_code_of_a_job_is_explained_and_whether_it_is_tried_again() -> None:
    documented = {code: cells[1] for code, cells in _rows(JOBS).items()}

    assert documented == {code.value: "yes" if code in RETRYABLE else "no" for code in JobErrorCode}


def test_each_operation_has_its_section_with_its_statuses() -> None:
    sections = dict(re.findall(r"^## (\w+ /\S*)\n(.*?)(?=^## |\Z)", HTTP, re.MULTILINE | re.DOTALL))

    assert set(sections) == {f"{operation.method.upper()} {operation.path}" for operation in OPERATIONS}
    for operation in OPERATIONS:
        text = sections[f"{operation.method.upper()} {operation.path}"]
        told = {int(status) for status in re.findall(r"\b([2-5]\d\d)\b", text)}
        assert set(operation.answers) | operation.statuses <= told | EVERYWHERE, operation.name
        for name in [*(operation.query or {}), *(operation.headers or {})]:
            assert name in text, (operation.name, name)


def test_each_member_of_a_body_is_explained() -> None:
    for name in BulkJobBody.__struct_fields__:
        assert f"`{name}`" in HTTP, name


def _members(heading: str) -> set[str]:
    """The members that the first column of the tables below a heading names."""
    text = HTTP.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_each_member_of_a_job_is_explained_and_no_other() -> None:
    told = _members("### A job's members")

    assert set(JobView.__struct_fields__) <= told
    assert told - set(JobView.__struct_fields__) == PROVENANCE


def _passed_on(file: str, variable: str) -> set[str]:
    """The keys of the dictionary that a module of the workers makes."""
    tree = ast.parse((DOCS.parents[1] / "workers" / file).read_text(encoding="utf-8"))
    return {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [variable]
        if isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def test_the_provenance_that_is_explained_is_what_workers_state() -> None:
    assert _passed_on("execute.py", "provenance") | {"attempt"} == PROVENANCE


@pytest.mark.parametrize("part", [JobFailure, BulkEntry, BulkFailure, ModelLimits], ids=lambda part: part.__name__)
def test_each_member_of_a_part_is_named(part: type[msgspec.Struct]) -> None:
    for name in part.__struct_fields__:
        assert f"`{name}`" in HTTP or f'"{name}"' in HTTP, name


def test_each_content_type_that_passes_is_named() -> None:
    text = HTTP.split("### Content types")[1].split("\n## ")[0]

    for name in (JSON_TYPES | NDJSON_TYPES) - {""}:
        assert f"`{name}`" in text, name
