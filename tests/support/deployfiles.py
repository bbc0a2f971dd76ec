"""What the files for deployment say: the Dockerfile, docker-compose.yml, systemd units, Kubernetes manifests."""

import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile: its word, its flags (`--from=x`), and the rest as it stands there."""

    word: str
    flags: dict[str, str]
    rest: str

    def exec_form(self) -> list[str] | None:
        """Returns the words of a JSON array, None where it is the shell form."""
        try:
            words = json.loads(self.rest)
        except ValueError:
            return None
        return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


@dataclass(slots=True)
class Stage:
    """One stage of a Dockerfile."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        """Returns the instructions of that word."""
        return [instruction for instruction in self.instructions if instruction.word == word]


class Dockerfile:
    """A Dockerfile without here-documents and without parser directives that change its escape character.

    Raises:
        ValueError: If it holds what this reader does not know.
    """

    def __init__(self, text: str) -> None:
        self.args: dict[str, str] = {}
        self.stages: dict[str, Stage] = {}
        stage: Stage | None = None
        for instruction in _instructions(text):
            if instruction.word == "FROM":
                base, _, name = instruction.rest.partition(" AS ")
                stage = Stage(name.strip() or str(len(self.stages)), self._expanded(base.strip()))
                self.stages[stage.name] = stage
            elif stage is None:
                if instruction.word != "ARG":
                    raise ValueError(f"{instruction.word} before FROM")
                name, _, value = instruction.rest.partition("=")
                self.args[name] = value
            else:
                stage.instructions.append(instruction)

    def lineage(self, name: str) -> list[Stage]:
        """Returns a stage and those that it is built from, the outermost first."""
        stage = self.stages[name]
        return [*(self.lineage(stage.base) if stage.base in self.stages else []), stage]

    def effective(self, name: str, word: str) -> list[Instruction]:
        """Returns all instructions of a word that count in an image."""
        return [instruction for stage in self.lineage(name) for instruction in stage.all(word)]

    def _expanded(self, text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda found: self.args[found[1]], text)


_WORDS = frozenset(
    {
        "FROM",
        "ARG",
        "ENV",
        "RUN",
        "COPY",
        "WORKDIR",
        "USER",
        "LABEL",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
        "EXPOSE",
        "VOLUME",
    }
)


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    logical = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    found = []
    for line in filter(None, map(str.strip, logical)):
        word, _, rest = line.partition(" ")
        if word not in _WORDS or "<<" in rest:
            raise ValueError(f"cannot read: {line}")
        flags = {}
        while flag := re.match(r"--([a-z]+)=(\S+)\s+", rest):
            flags[flag[1]] = flag[2]
            rest = rest[flag.end() :]
        found.append(Instruction(word, flags, rest.strip()))
    return found


@cache
def dockerfile() -> Dockerfile:
    """Returns the project's."""
    return Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))


@cache
def project() -> dict[str, Any]:
    """Returns pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no types
    """YAML in which a key may stand once: the last of two would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if len(keys) != len(set(keys)):
            raise ValueError(f"a key stands twice among {keys}{node.start_mark}")
        return dict(super().construct_mapping(node, deep))


def strict_yaml(text: str) -> Any:
    """Returns what a YAML document says."""
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a safe one


@cache
def compose() -> dict[str, Any]:
    """Returns docker-compose.yml with its anchors resolved and variables as if none were set."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    defaulted = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    found: dict[str, Any] = strict_yaml(defaulted)
    return found


def ours() -> dict[str, dict[str, Any]]:
    """Returns the services of the compose file that run an image of ours."""
    return {name: service for name, service in compose()["services"].items() if "build" in service}


def seconds(duration: str) -> float:
    """Returns a duration of compose or Kubernetes (`45s`, `1m30s`) in seconds."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"(\d+)(ms|[smh])", duration)
    if "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"not a duration: {duration}")
    return sum(int(number) * units[unit] for number, unit in parts)
