"""The examples of the pages that start fleets of their own run; see `tests/support/docpages.py`."""

import pytest

from tests.support.docrun import FLEETS, RunPage


@pytest.mark.timeout(300)  # a page is many commands, and each of them a process
@pytest.mark.parametrize("page", FLEETS)
def test_the_examples_of_the_page_work(page: str, run_page: RunPage) -> None:
    run_page(page)
