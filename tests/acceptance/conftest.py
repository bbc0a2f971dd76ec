"""Fixtures of the tests that run the documentation."""

from tests.support.docrun import doc_cache, doc_fleet, run_page

__all__ = ["doc_cache", "doc_fleet", "run_page"]
