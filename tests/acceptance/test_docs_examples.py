"""Every example of the documentation runs, as it stands on its page (`tests/support/docpages.py` says how).

What cannot run here says so in its page's source, with the reason. The pages that take longest are run by
`test_docs_operating.py` and `test_docs_fleets.py`; all others are here.
"""

import json

import pytest

from tests.support.docpages import Block, blocks_of, check_data, pages
from tests.support.docrun import FLEETS, OPERATING, OTHERS, PAGES, RUN, RunPage


@pytest.mark.timeout(300)  # a page is many commands, and each of them a process
@pytest.mark.parametrize("page", OTHERS)
def test_the_examples_of_the_page_work(page: str, run_page: RunPage) -> None:
    run_page(page)


def test_every_page_is_run_once() -> None:
    assert sorted([*OTHERS, *OPERATING, *FLEETS]) == PAGES


ALL = [block for page in pages() for block in blocks_of(page)]
DATA = [block for block in ALL if block.language not in RUN and block.not_run is None]


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.where)
def test_what_is_data_is_of_its_language(block: Block) -> None:
    check_data(block)


def test_what_is_not_run_says_why() -> None:
    bare = [block.where for block in ALL if block.not_run is not None and len(block.not_run) < len("no Docker")]

    assert bare == []


def test_what_is_not_run_is_the_exception() -> None:
    """Marks are easily written; this keeps the count of blocks that nobody runs in sight."""
    not_run = [block.where for block in ALL if block.not_run is not None]
    run = [block.where for block in ALL if block.language in RUN and block.not_run is None]

    assert len(not_run) <= len(run), json.dumps(not_run, indent=1)
