"""An environment of its own for each peer, made once from its file of requirements and used again."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_HERE = Path(__file__).parent
_STAMP = ".made-of"
_INSTALL_S = 600.0


class NotInstalledError(Exception):
    """A peer cannot be had here."""


def requirements(peer: str) -> Path:
    """Returns the file that says what a peer needs, with versions."""
    return _HERE / "requirements" / f"{peer}.txt"


def environment(peer: str, say: Callable[[str], None]) -> Path:
    """Returns the folder of a peer's environment; makes it where it is absent or of other requirements.

    Raises:
        NotInstalledError: If it cannot be made; the message ends with what pip said last.
    """
    folder = _HERE / ".environments" / peer
    wanted = f"{sys.version_info[:2]} {hashlib.sha256(requirements(peer).read_bytes()).hexdigest()}"
    stamp = folder / _STAMP
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted and (folder / "bin" / "python").exists():
        return folder
    say(f"installing {peer} into {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--requirement", str(requirements(peer)))
    stamp.write_text(wanted, encoding="ascii")
    return folder


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        raise NotInstalledError(f"{command[1:4]} failed: {' '.join(last)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error
