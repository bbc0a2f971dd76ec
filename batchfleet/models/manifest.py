"""What a version's files are and how they were made: the values of `MANIFEST.json`.

The *model digest* names exactly these bytes: results carry it, measurements are remembered under it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from batchfleet.errors import DigestMismatchError, ModelConfigError
from batchfleet.models.config import convert, is_safe_path

MANIFEST_FILE = "MANIFEST.json"

_READ_BYTES = 1 << 20
Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How exact one variant was against the float reference when the version was built.

    Attributes:
        variant: Name of the variant.
        mean_cosine: Mean cosine over all texts.
        min_cosine: Cosine of the worst text.
        company_min_cosine: Cosine of the worst text, alone against in a batch.
        texts: Number of texts compared.
    """

    variant: str
    mean_cosine: float
    min_cosine: float
    company_min_cosine: float
    texts: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """How long one pass of one shape took on the building machine.

    Attributes:
        variant: Name of the variant.
        rows: Rows of the pass.
        length: Padded tokens of each row.
        seconds: Wall seconds of the pass, the best of a few.
    """

    variant: str
    rows: int
    length: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of one `MANIFEST.json`.

    Attributes:
        format: Format version of the file.
        files: SHA-256 in hexadecimal of every other file of the version, by path relative to its folder.
        source: Where the weights came from, for people and for rebuilding.
        build: Settings and machine of the build.
        accuracy: Accuracy of each variant that the building machine could run.
        profile: Latency of passes on the building machine, a first guess for cost models.
    """

    files: Mapping[str, Sha256]
    format: Literal[1] = 1
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    build: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    accuracy: tuple[Accuracy, ...] = ()
    profile: tuple[LatencySample, ...] = ()

    @property
    def digest(self) -> str:
        """The model digest, 64 hexadecimal digits: SHA-256 over the file digests, sorted by path."""
        digest = hashlib.sha256()
        for path, sha256 in sorted(self.files.items()):
            digest.update(f"{sha256}  {path}\n".encode())
        return digest.hexdigest()


def read_manifest(path: Path) -> Manifest:
    """Reads and checks the `MANIFEST.json` at `path`.

    Raises:
        ModelConfigError: If the file is missing, no JSON, or a field is missing, unknown or wrong.
    """
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ModelConfigError(f"{path}: cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise ModelConfigError(f"{path}: must be a JSON object")
    manifest = convert(raw, Manifest, source=str(path))
    for name in manifest.files:
        if not is_safe_path(name):
            raise ModelConfigError(f"{path}: `files`: {name!r} is not a path inside the version")
    return manifest


def render_manifest(manifest: Manifest) -> str:
    """Returns the text of a `MANIFEST.json` that reads back as `manifest`."""
    return json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True) + "\n"


def file_digests(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file below `folder` but its manifest, by relative POSIX path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    relative = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: sha256_of(path) for name, path in relative.items() if name != MANIFEST_FILE}


def verify_files(folder: Path, files: Mapping[str, str]) -> None:
    """Compares files below `folder` with the digests in `files` (relative path to SHA-256).

    Raises:
        DigestMismatchError: If a file is missing or differs; the message names it.
    """
    for name, expected in files.items():
        try:
            actual = sha256_of(folder / name)
        except OSError as error:
            raise DigestMismatchError(f"{folder / name}: listed in {MANIFEST_FILE}, cannot be read") from error
        if actual != expected:
            raise DigestMismatchError(
                f"{folder / name}: SHA-256 is {actual[:12]}…, {MANIFEST_FILE} states {expected[:12]}…:"
                " a published version may not be edited, publish a new one"
            )


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal.

    Raises:
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        return sha256_of_chunks(iter(lambda: file.read(_READ_BYTES), b""))


def sha256_of_chunks(chunks: Iterable[bytes]) -> str:
    """Returns the SHA-256 of the concatenated `chunks` in hexadecimal."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
