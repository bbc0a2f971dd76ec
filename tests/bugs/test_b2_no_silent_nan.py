"""B2: no NaN goes out as a success.

Long and short items in one batch gave NaN where a row was nearly all padding, or where a length crossed a
kernel's block size; the NaN was returned as an embedding. [transformers#45491, mlx-embeddings#80]
The half of the case that needs a failing device is in `tests/unit/inference/test_isolate.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from batchfleet.inference.isolate import run_isolated
from batchfleet.inference.measure import agreement, one_by_one, pass_items, run_batches
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.inference.task import ItemFault
from batchfleet.models.repository import ModelRepository
from tests.support.models import INTEGER, build_tiny_encoder, tiny_text


@pytest.fixture(scope="module", params=["fp32", INTEGER])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    root: Path = tmp_path_factory.mktemp("models")
    loaded = load_executor(ModelRepository(root).open(build_tiny_encoder(root, positions=1024)), request.param)
    yield loaded
    loaded.executor.close()


@pytest.mark.parametrize("lengths", [(142, 452, 555, 728), (7, 255, 256, 257, 288)])
def test_mixed_lengths_are_finite_and_equal_to_single_runs(model: LoadedModel, lengths: tuple[int, ...]) -> None:
    parameters = model.task.default_parameters()
    texts = [tiny_text(length) for length in lengths]
    items = pass_items(model.task.prepare(texts, [parameters] * len(texts)), parameters)
    assert [item.item.length for item in items] == list(lengths)

    outcomes = run_isolated(model.executor, items).outcomes

    together = [outcomes[index] for index in range(len(lengths))]
    vectors = [vector for vector in together if not isinstance(vector, ItemFault)]
    assert len(vectors) == len(lengths)
    assert all(np.isfinite(vector).all() for vector in vectors)
    alone, _ = run_batches(model.executor, one_by_one(items))
    assert agreement(alone, vectors).minimum > 0.99999
