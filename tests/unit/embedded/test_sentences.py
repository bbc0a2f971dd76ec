"""The demo's sentences are prose, different from each other, and the same at every call."""

import sys

import pytest

from batchfleet.embedded.sentences import english_sentences, sentences_of


def test_three_thousand_different_sentences_of_varied_length() -> None:
    found = english_sentences(3_000)

    assert len(found) == len(set(found)) == 3_000
    lengths = sorted(len(sentence.split()) for sentence in found)
    assert lengths[-1] > 4 * lengths[len(lengths) // 2]


def test_the_same_at_every_call() -> None:
    assert english_sentences(50) == english_sentences(50)


def test_without_the_manual_docstrings_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)

    assert len(english_sentences(500)) == 500


def test_code_and_tables_are_no_sentences() -> None:
    text = """A heading
*********

This is a sentence with *marks* in it. Here is another one, without any.

   >>> print("This is code.")

| A table. | Another cell. |

x = {1: 2}.
"""

    assert list(sentences_of(text)) == [
        "This is a sentence with marks in it.",
        "Here is another one, without any.",
    ]
