"""B1: items of equal length are not special.

A server skipped the attention mask when all items of a batch had the same length, while its pooling still
padded to a multiple: cosine 0.142 for the same text twice. [text-embeddings-inference#882]
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from batchfleet.inference.measure import agreement, one_by_one, pass_items, run_batches
from batchfleet.inference.registry import LoadedModel, load_executor
from batchfleet.models.repository import ModelRepository
from tests.support.models import INTEGER, build_tiny_encoder, tiny_text


@pytest.fixture(scope="module", params=["fp32", INTEGER])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    root: Path = tmp_path_factory.mktemp("models")
    loaded = load_executor(ModelRepository(root).open(build_tiny_encoder(root, layers=2)), request.param)
    yield loaded
    loaded.executor.close()


@pytest.mark.parametrize("lengths", [(11, 11), (11, 3), (11, 11, 3, 3)])
def test_items_of_equal_and_unequal_length_agree_with_their_own_runs(
    model: LoadedModel, lengths: tuple[int, ...]
) -> None:
    parameters = model.task.default_parameters()
    texts = [tiny_text(length, seed=length) for length in lengths]
    items = pass_items(model.task.prepare(texts, [parameters] * len(texts)), parameters)
    assert [item.item.length for item in items] == list(lengths)

    together, _ = run_batches(model.executor, (tuple(items),))
    alone, _ = run_batches(model.executor, one_by_one(items))

    assert agreement(alone, together).minimum > 1 - 1e-3
    assert agreement(alone, together).minimum > 0.99999, "the product's own, tighter promise"
    for first, second in ((i, j) for i in range(len(lengths)) for j in range(i)):
        same = lengths[first] == lengths[second]
        assert np.allclose(together[first], together[second], atol=1e-5) is same
