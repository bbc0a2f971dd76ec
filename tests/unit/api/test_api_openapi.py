"""The document says what the routes are: no more, no less."""

import re
from typing import Any
from unittest.mock import create_autospec

from api.app import ROUTES
from api.openapi import document
from api.operations import OPERATIONS
from api.routes.submit import SubmitRoutes
from api.services import Services


def _routes() -> set[tuple[str, str, str]]:
    services = create_autospec(Services, instance=True)
    handlers = [handler for routes in ROUTES for handler in routes(services).handlers()]
    return {
        (method.lower(), re.sub(r"\{(\w+):str\}", r"{\1}", path), str(handler.name))
        for handler in handlers
        for path in handler.paths
        for method in handler.http_methods
    }


def test_each_route_is_described_and_nothing_else() -> None:
    assert SubmitRoutes in ROUTES
    assert {(operation.method, operation.path, operation.name) for operation in OPERATIONS} == _routes()


def test_every_reference_leads_somewhere() -> None:
    described = document("1")
    schemas = described["components"]["schemas"]

    names = {reference.removeprefix("#/components/schemas/") for reference in _references(described)}
    assert names <= set(schemas)
    assert {"JobBody", "JobView", "Problem", "BulkAnswer"} <= names


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(each) for each in value))
    return set()
