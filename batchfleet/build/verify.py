"""Refuses variants that are too far from the float reference.

Two questions are asked of each variant, on texts that no one tuned it on: how far is each item from the float
reference (cosine, mean and worst), and does company matter (the same item alone and between longer and shorter
ones, worst)? The floors are in `batchfleet.models.accuracy`.
"""

from collections.abc import Iterator, Sequence

from batchfleet.errors import AccuracyError
from batchfleet.inference.executor import PassItem
from batchfleet.inference.measure import agreement, as_they_come, one_by_one, pass_items, run_batches
from batchfleet.inference.registry import LoadedModel
from batchfleet.inference.task import Output
from batchfleet.models.accuracy import FLOORS
from batchfleet.models.manifest import Accuracy

_TOPIC_TEXTS = 40
_TOPIC_LENGTHS = (40, 90, 200, 400, 800, 1600)  # characters
_HEADING_LINES = 2


def held_out_texts() -> Iterator[str]:
    """Yields technical English of many lengths from Python's own documentation, none where it is not installed."""
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - an optional part of the standard library
    except ImportError:
        return
    for index, name in enumerate(sorted(topics)[:_TOPIC_TEXTS]):
        body = " ".join(topics[name].split("\n", _HEADING_LINES)[-1].split())
        yield body[: _TOPIC_LENGTHS[index % len(_TOPIC_LENGTHS)]] or name


def outputs_alone(model: LoadedModel, inputs: Sequence[object]) -> list[Output]:
    """Returns a variant's outputs, each item in a pass of its own; inputs that cannot be prepared are left out.

    Raises:
        PassFailedError: If a pass fails.
    """
    return run_batches(model.executor, one_by_one(_items(model, inputs)))[0]


def measure_accuracy(
    model: LoadedModel, inputs: Sequence[object], alone: Sequence[Output], reference: Sequence[Output]
) -> Accuracy:
    """Compares a variant with the reference, and with itself in company.

    Args:
        model: The variant.
        inputs: What both ran.
        alone: `outputs_alone` of the variant.
        reference: `outputs_alone` of the float reference.

    Raises:
        PassFailedError: If a pass fails.
    """
    items = _items(model, inputs)
    # Unsorted on purpose: an item's neighbours are longer and shorter, which is where padding could leak in.
    together, _ = run_batches(model.executor, as_they_come(items, model.executor.shapes))
    exact = agreement(alone, reference)
    return Accuracy(
        variant=model.variant.name,
        mean_cosine=exact.mean,
        min_cosine=exact.minimum,
        company_min_cosine=agreement(alone, together).minimum,
        texts=len(items),
    )


def require_floor(accuracy: Accuracy, precision: str) -> None:
    """Refuses a variant under the floor of its precision.

    Raises:
        AccuracyError: With a table of what was measured and what is required.
    """
    floor = FLOORS[precision]
    rows = (
        ("mean cosine", accuracy.mean_cosine, floor.mean),
        ("worst cosine", accuracy.min_cosine, floor.minimum),
        ("worst in company", accuracy.company_min_cosine, floor.company),
    )
    # `not >=` and not `<`: a cosine that is NaN is under every floor.
    if any(not measured >= required for _, measured, required in rows):
        raise AccuracyError(
            f"variant {accuracy.variant} ({precision}) is under its accuracy floor on {accuracy.texts} texts\n"
            + _table(rows)
        )


def _items(model: LoadedModel, inputs: Sequence[object]) -> list[PassItem]:
    parameters = model.task.default_parameters()
    return pass_items(model.task.prepare(inputs, [parameters] * len(inputs)), parameters)


def _table(rows: Sequence[tuple[str, float, float]]) -> str:
    lines = [f"{'':18}{'measured':>10}{'required':>10}"]
    for name, measured, required in rows:
        verdict = "" if measured >= required else "  under"
        lines.append(f"{name:18}{measured:>10.5f}{required:>10.5f}{verdict}")
    return "\n".join(lines)
