"""Real English sentences without a download: Python's own manual pages and docstrings, read at run time."""

import ast
import importlib
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_SEED = 20
_END = re.compile(r"(?<=[a-z)][.!?])\s+(?=[A-Z])")
_WORDS = re.compile(r"[A-Za-z][a-z']+")
_SYMBOLS = re.compile(r"[*<>={}|\\/_\[\]#@^~]|::|--")
_MARKS = re.compile(r"\*\*?([^*\s][^*]*)\*\*?|``?([^`]+)``?")
_SHORTEST, _LONGEST = 20, 700


def english_sentences(count: int) -> list[str]:
    """Returns up to `count` different sentences of varied length, the same ones at each call on one Python.

    Pages of the manual come first (`pydoc_data`, which some distributions leave out), docstrings of the
    standard library fill up.
    """
    return list(_chosen(count))


@cache
def _chosen(count: int) -> tuple[str, ...]:
    """Kept, since it parses a part of the standard library: seconds on a slow machine."""
    found: dict[str, None] = {}
    for text in _texts():
        for sentence in sentences_of(text):
            found.setdefault(sentence)
        if len(found) >= 2 * count:
            break
    chosen = list(found)
    random.Random(_SEED).shuffle(chosen)  # noqa: S311 - a fixed order is the point
    return tuple(chosen[:count])


def sentences_of(text: str) -> Iterator[str]:
    """Yields the sentences of running text; code, tables and headings are left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if not lines or any(line.lstrip().startswith((">>>", "...", "|", "+-")) for line in lines):
            continue
        flat = _MARKS.sub(lambda match: match[1] or match[2], " ".join(paragraph.split()))
        yield from (sentence for sentence in _END.split(flat) if _is_prose(sentence))


def _is_prose(sentence: str) -> bool:
    if not _SHORTEST <= len(sentence) <= _LONGEST or not sentence[0].isupper() or sentence[-1] not in ".!?":
        return False
    letters = sum(len(word) for word in _WORDS.findall(sentence))
    return letters > 0.7 * len(sentence) and not _SYMBOLS.search(sentence)


def _texts() -> Iterator[str]:
    yield from _manual()
    yield from _docstrings(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))


def _manual() -> Iterable[str]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return ()
    return topics.values()


def _docstrings(files: Iterable[Path]) -> Iterator[str]:
    """Yields docstrings without importing anything: some modules of the library act when imported."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield ast.get_docstring(node) or ""
