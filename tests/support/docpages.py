"""The documentation's examples, taken from the pages and run as a reader would run them.

A page is one session: its blocks run in order, in one folder, in one environment, each where the one before it left
off. What a page shows as output (comment lines under a command, or the lines under a `$ command`) is compared by its
shape: white space, numbers and ids may differ, and `…` stands for anything. An id that a page cuts short
(`job_01a2…`) means, from then on, the id that was really printed in its place.

HTML comments in the page's source, which readers do not see, say what else there is to know:

- `<!-- not run: reason -->` before a block: it cannot run here.
- `<!-- terminals -->`: each line is a program that keeps a terminal of its own until the page ends.
- `<!-- stop terminals: reason -->`, `<!-- start terminals: reason -->`: what the block would do to services of this
  machine is done to those programs instead.
- `<!-- exits 8 -->`: the block ends with that code, as it says.
- `<!-- fleet: own -->` once a page: it starts its own fleet, instead of using one that runs already.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROSE = frozenset({"", "text"})
"""Languages of blocks that show a drawing or an output alone."""
_ACTS = ("stop terminals", "start terminals")
_DATA = frozenset({"ini", "json", "toml", "yaml", "yml"})

_FENCE = re.compile(
    r"(?P<marks>(?:^[ \t]*<!--[^\n]*-->\n(?:[ \t]*\n)?)*)^(?P<indent>[ \t]*)```(?P<language>[\w-]*)[^\n]*\n"
    r"(?P<text>.*?)^[ \t]*```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!--\s*(.*?)\s*-->")
CUT_ID = re.compile(r"\b(?:job_[0-9a-f]*|[a-z]{2,8}_[0-9a-f]{2,})…")
ID = re.compile(r"\b[a-z]{2,8}_[0-9a-f]{16,32}\b")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        line: Where it begins on its page.
        mark: What its HTML comment says, empty without one.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Why it is not run; None if it is."""
        what, _, reason = self.mark.partition(":")
        return reason.strip() if what in {"not run", *_ACTS} else None


@dataclass(frozen=True, slots=True)
class Example:
    """What a shell block asks to be run, and what it says that comes out."""

    script: str
    shown: str


def pages() -> list[str]:
    """Returns every page of the documentation."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks_of(page: str, text: str | None = None) -> list[Block]:
    """Returns the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    found = []
    for fence in _FENCE.finditer(text):
        marks = _MARK.findall(fence["marks"])
        indent = fence["indent"]
        body = "".join(line.removeprefix(indent) for line in fence["text"].splitlines(keepends=True))
        line = text.count("\n", 0, fence.end("marks")) + 1
        found.append(Block(page, line, fence["language"], body, marks[-1] if marks else ""))
    return found


def fleet_of(page: str) -> str:
    """Returns `own` for a page that starts its own fleet, else `shared`."""
    return "own" if "<!-- fleet: own -->" in (ROOT / page).read_text(encoding="utf-8") else "shared"


def examples_of(block: Block) -> list[Example]:
    """Splits a shell block into what is run and what is shown under it."""
    lines = _console(block.text) if block.language == "console" else _shell_lines(block.text)
    examples: list[Example] = []
    script: list[str] = []
    shown: list[str] = []
    for is_shown, line in lines:
        if shown and not is_shown:
            examples.append(Example("\n".join(script), "\n".join(shown)))
            script, shown = [], []
        (shown if is_shown else script).append(line)
    return [*examples, Example("\n".join(script), "\n".join(shown))]


def _shell_lines(text: str) -> Iterator[tuple[bool, str]]:
    """Yields whether a line is shown output, and the line: comments under a command are, unless in a here-document."""
    under_command, here_end = False, ""
    for line in text.splitlines():
        if here_end:
            here_end = "" if line == here_end else here_end
            yield False, line
        elif under_command and line.startswith("# "):
            yield True, line[2:]
        else:
            under_command = bool(line.strip())
            here_end = found[1] if (found := re.search(r"<<'?(\w+)'?", line)) else ""
            yield False, line


def _console(text: str) -> Iterator[tuple[bool, str]]:
    command = ""
    for line in text.splitlines():
        if command.endswith("\\") or command.count("'") % 2 == 1:
            command += f"\n{line}"
            yield False, line
        elif line.startswith("$ "):
            command = line.removeprefix("$ ")
            yield False, command
        else:
            command = ""
            yield True, line


def shape(text: str) -> str:
    """Returns what two runs of one example have in common."""
    text = CUT_ID.sub("ID", ID.sub("ID", text))
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    # Within a number `…` cuts it short.
    text = re.sub(r"(?<=\d)…", "", text)
    return re.sub(r"\s+", "", _NUMBER.sub("N", text))


def difference(shown: str, output: str) -> str | None:
    """Returns the first part of what is shown that did not come out, None if all did, in its order."""
    actual, at = shape(output), 0
    for line in filter(None, map(str.strip, shown.splitlines())):
        # A status code that curl does not print: "202 {…}".
        for part in filter(None, shape(re.sub(r"^\d{3} (?=\{)", "", line)).split("…")):
            found = actual.find(part, at)
            if found < 0:
                return f"{line!r} (its part {part!r})"
            at = found + len(part)
    return None


def check_data(block: Block) -> None:
    """Checks a block that is data and not a program.

    Raises:
        ValueError: If it is not of its language, or the language is not known here.
    """
    if block.language not in PROSE | _DATA:
        raise ValueError(
            f"{block.where}: language {block.language!r} is not known: mark the block, or teach `docpages`"
        )
    text = block.text.replace("…,", "").replace(", …", "").replace("…", "x")
    try:
        if block.language == "json":
            json.loads(text)
        elif block.language == "ini":
            configparser.ConfigParser(interpolation=None, strict=False).read_string(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language in {"yaml", "yml"}:
            list(yaml.safe_load_all(block.text))
    except (ValueError, configparser.Error, yaml.YAMLError) as error:
        raise ValueError(f"{block.where}: {error}") from error
