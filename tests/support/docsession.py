"""A reader at a shell, who runs the examples of a page of the documentation; see `docpages`."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Self

from tests.support.docpages import CUT_ID, ID, Block, Example, difference, examples_of

_BLOCK_S = 90.0
_READY = re.compile(r"ready: |is ready|listening|action=process_ready|\"process_ready\"")
_STOP_S = 60.0
_POLL_S = 0.02


class Session:
    """A reader at a shell.

    Args:
        folder: Where the reader works; the environment's virtual environment is in it as `.venv`.
        environment: What the reader's shell begins with.
        places: What stands on the pages for a place, and where it is here.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], places: Mapping[str, str]) -> None:
        self._cwd = str(folder)
        self._folder = folder
        self._environment = dict(environment)
        self._places = dict(places)
        self._ids: dict[str, str] = {}
        self._lines: list[str] = []
        self._programs: list[tuple[str, subprocess.Popen[str], Path]] = []

    def run(self, block: Block) -> None:
        """Runs a block.

        Raises:
            AssertionError: If it fails, or shows what did not come out.
        """
        match block.mark.partition(":")[0]:
            case "terminals":
                self._lines = list(filter(None, self._here(block.text).splitlines()))
                self._start_all(block)
            case "stop terminals":
                codes = self._end()
                assert all(code == 0 for code, _ in codes.values()), codes
            case "start terminals":
                self._start_all(block)
            case "not run":
                pass
            case _:
                self._run(block)

    def _start_all(self, block: Block) -> None:
        for line in self._lines:
            self._start(line)
        for line, program, log in self._programs:
            with log.open() as follow:
                assert _becomes_ready(program, follow), f"{block.where}: {line}\n{log.read_text()}"

    def _run(self, block: Block) -> None:
        expected = int(block.mark.split()[1]) if block.mark.startswith("exits ") else 0
        if block.language == "python":
            examples = [Example("python - <<'END OF EXAMPLE'\n" + block.text + "\nEND OF EXAMPLE", "")]
        else:
            examples = examples_of(block)
        for example in examples:
            script = self._here(example.script)
            ended = self._shell(script)
            said = f"{block.where}\n{script}\n--- exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
            assert ended.returncode == (expected if example is examples[-1] else 0), f"{said}\n{self._told()}"
            output = ended.stdout + ended.stderr
            missing = difference(example.shown, output)
            assert missing is None, f"{said}\n--- did not come out: {missing}"
            self._learn(example.shown, output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        codes = self._end()
        assert kind is not None or all(code == 0 for code, _ in codes.values()), codes

    def _end(self) -> dict[str, tuple[int, str]]:
        """Ends what keeps a terminal, as ctrl-C does, all at once; returns exit codes and the logs' ends."""
        codes = {}
        for _, program, _ in self._programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGINT)
        for line, program, log in self._programs:
            try:
                program.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
            codes[line] = (program.returncode, log.read_text()[-2000:])
        self._programs.clear()
        return codes

    def _here(self, text: str) -> str:
        for cut, whole in self._ids.items():
            text = text.replace(cut, whole)
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        return text

    def _learn(self, shown: str, output: str) -> None:
        real = iter(ID.findall(output))
        for cut in dict.fromkeys(CUT_ID.findall(shown)):
            kind = cut.partition("_")[0] + "_"
            found = next((whole for whole in real if whole.startswith(kind)), None)
            if found is not None:
                self._ids[cut] = found

    def _shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        # `set -a`: variables of one block are there in the next. The trap tells where the block left off.
        left = self._folder / ".left-off"
        wrapped = f"set -aeo pipefail\ntrap '{{ pwd; env -0; }} > {left}' EXIT\n{script}\n"
        ended = subprocess.run(
            ["bash", "-c", wrapped],
            cwd=self._cwd,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BLOCK_S,
            check=False,
        )
        self._cwd, _, pairs = left.read_text(encoding="utf-8").partition("\n")
        self._environment = dict(pair.split("=", 1) for pair in pairs.split("\0") if pair)
        return ended

    def _start(self, line: str) -> None:
        log = self._folder / f".terminal-{len(self._programs)}"  # of a second start, written anew
        with log.open("w") as out:
            program = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._programs.append((line, program, log))

    def _told(self) -> str:
        return "\n".join(f"--- {line}\n{log.read_text()[-3000:]}" for line, _, log in self._programs)


def _becomes_ready(program: "subprocess.Popen[str]", follow: IO[str]) -> bool:
    """Follows a program's log until it says that it is ready; a file has no event that tells of a new line."""
    return any(_READY.search(said) for said in _lines(program, follow))


def _lines(program: "subprocess.Popen[str]", follow: IO[str]) -> Iterator[str]:
    waited_s = 0.0
    while waited_s < _BLOCK_S:
        line = follow.readline()
        if line:
            yield line
        elif program.poll() is not None:
            return
        else:
            time.sleep(_POLL_S)
            waited_s += _POLL_S


def reader_environment(home: Path, cache: Path) -> dict[str, str]:
    """Returns what a reader's shell begins with: nothing of ours but the programs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": str(cache),
        "BATCHFLEET_WORKER_VARIANT": "fp32",
        "NO_COLOR": "1",
    }
