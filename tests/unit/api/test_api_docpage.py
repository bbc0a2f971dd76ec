"""The page shows what a person needs to write a request, and only errors that can come."""

import re

from api.docpage import page_of
from api.openapi import document
from api.operations import OPERATIONS
from api.schemas import BulkJobBody, JobBody, LookupBody

PAGE = page_of(document("1"))
SECTIONS = {
    f"{method} {path}": text
    for method, path, text in re.findall(
        r"<h2><span class=method>(\w+)</span> <code>([^<]+)</code></h2>(.*?)(?=<h2>|\Z)", PAGE, re.DOTALL
    )
}


def _members(section: str) -> dict[str, tuple[str, str, str]]:
    rows = re.findall(r"<tr><td><code>(\w+)</code><td>([^<]*)<td>([^<]*)<td>((?:(?!<tr>|</table>).)*)", section)
    return {name: (kind, required, meaning) for name, kind, required, meaning in rows}


def test_each_member_of_each_body_is_shown_with_type_need_and_meaning() -> None:
    bodies = {"POST /v1/jobs": JobBody, "POST /v1/jobs/bulk": BulkJobBody, "POST /v1/jobs/lookup": LookupBody}
    for operation, body in bodies.items():
        shown = _members(SECTIONS[operation])
        assert tuple(shown) == body.__struct_fields__, operation
        assert all(kind and meaning for kind, _, meaning in shown.values())

    job = _members(SECTIONS["POST /v1/jobs"])
    needs = {name: need for name, (_, need, _) in job.items() if need}
    assert needs == {"model": "required", "inputs": "one of them", "input_uri": "one of them"}
    assert job["lane"][0] == "bulk | online | standard"
    assert job["run_at"][0] == "time (RFC 3339)"
    assert _members(SECTIONS["POST /v1/jobs/lookup"])["ids"][0] == "array of string"


def test_each_operation_lists_the_codes_that_it_can_give_and_no_other() -> None:
    for operation in OPERATIONS:
        section = SECTIONS[f"{operation.method.upper()} {operation.path}"].rpartition("<caption>Answers")[2]
        rows = re.findall(r"<tr><td>\d+<td>((?:<code>\w+</code>(?:, )?)+)(?=<tr>|</table>)", section)
        shown = [code for row in rows for code in re.findall(r"<code>(\w+)</code>", row)]
        assert sorted(shown) == sorted(operation.codes), operation.name


def test_each_operation_says_which_role_it_needs() -> None:
    for operation in OPERATIONS:
        section = SECTIONS[f"{operation.method.upper()} {operation.path}"]
        told = "Needs no key." if operation.role is None else f"A key needs the role <code>{operation.role}</code>."
        assert told in section, operation.name


def test_what_unready_means_is_said() -> None:
    assert "<td>503<td>The database cannot be reached: <code>unavailable</code>." in SECTIONS["GET /readyz"]


def test_the_page_suits_small_screens_and_shows_no_markdown() -> None:
    assert "<meta name=viewport content='width=device-width, initial-scale=1'>" in PAGE
    assert "`" not in PAGE
    assert "<script" not in PAGE
