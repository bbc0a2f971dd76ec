"""The examples of the pages of running a fleet run; see `tests/support/docpages.py`."""

import pytest

from tests.support.docrun import OPERATING, RunPage


@pytest.mark.timeout(300)  # a page is many commands, and each of them a process
@pytest.mark.parametrize("page", OPERATING)
def test_the_examples_of_the_page_work(page: str, run_page: RunPage) -> None:
    run_page(page)
