"""The pages on HTTP and on errors say what the code does: all of it, and nothing else."""

import re
from pathlib import Path

from api.openapi import OPERATIONS
from api.problems import TABLE
from api.schemas import BulkJobBody
from batchfleet.errors import BatchfleetError
from batchfleet.jobs.job import JobErrorCode
from batchfleet.jobs.retry import RETRYABLE

DOCS = Path(__file__).parents[3] / "docs" / "reference"
ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")
HTTP = (DOCS / "http.md").read_text(encoding="utf-8")
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
        assert set(operation.answers) | set(operation.problems) <= told, operation.name
        for name in [*(operation.query or {}), *(operation.headers or {})]:
            assert name in text, (operation.name, name)


def test_each_member_of_a_body_is_explained() -> None:
    for name in BulkJobBody.__struct_fields__:
        assert f"`{name}`" in HTTP, name
