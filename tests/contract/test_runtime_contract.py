"""What every runtime and provider owes: the outputs of the graph, the provider asked for, or an error.

The suite runs over the providers that this machine has (a refusal itself is tested below).
"""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnxruntime import InferenceSession

from batchfleet.errors import ModelError, RuntimeUnavailableError
from batchfleet.inference.machine import Cpu
from batchfleet.inference.onnx_binding import BoundRuns
from batchfleet.inference.onnx_runtime import OnnxRuntime, OnnxSession
from batchfleet.inference.registry import LoadedModel, load_executor, load_runtime
from batchfleet.inference.runtime import RuntimeOptions, Session
from batchfleet.models.config import Precision, Variant
from batchfleet.models.repository import ModelFiles, ModelRepository
from tests.support.models import INTEGER, VOCABULARY, build_tiny_encoder

OPTIONS = RuntimeOptions(threads=1)


def variant_of(provider: str, precision: Precision, file: str = "model.fp32.onnx") -> Variant:
    name = f"{provider}-{precision}"
    return Variant(name=name, precision=precision, runtime="onnx", provider=provider, file=file)


CUDA = variant_of("cuda", "fp32")
EVERY_VARIANT = (
    variant_of("cpu", "fp32"),
    variant_of("cpu", INTEGER, f"model.{INTEGER}.onnx"),
    variant_of("openvino", "fp32"),
    variant_of("openvino", "bf16"),
    CUDA,
)
VARIANTS = [variant for variant in EVERY_VARIANT if load_runtime(variant.runtime).refusal(variant) is None]
ALLOWED = {"fp32": 1e-4, "bf16": 0.05, "int8": 0.06, "int7": 0.12}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    root = tmp_path_factory.mktemp("models")
    return ModelRepository(root).open(build_tiny_encoder(root))


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.name)
def variant(request: pytest.FixtureRequest) -> Variant:
    variant: Variant = request.param
    return variant


@pytest.fixture
def session(files: ModelFiles, variant: Variant) -> Session:
    return load_runtime(variant.runtime).load(files.path, variant, OPTIONS)


def feeds(rows: int, length: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    rng = np.random.default_rng(rows * 1000 + length)
    mask = np.ones((rows, length), np.int64)
    return {"input_ids": rng.integers(4, len(VOCABULARY), (rows, length)), "attention_mask": mask}


def test_the_session_says_what_it_really_is(session: Session, variant: Variant) -> None:
    assert session.provider == variant.provider
    assert session.precision == variant.precision
    assert session.compiles_per_shape is (variant.provider == "openvino")


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 7), (5, 7), (3, 200)])
def test_outputs_come_by_name_and_agree_with_float(
    files: ModelFiles, session: Session, variant: Variant, rows: int, length: int
) -> None:
    reference = OnnxRuntime().load(files.path, files.config.variant("fp32"), OPTIONS)

    outputs = session.run(feeds(rows, length))

    assert set(outputs) == {"sentence_embedding"}
    assert outputs["sentence_embedding"].shape == (rows, 32)
    assert outputs["sentence_embedding"].dtype == np.float32
    expected = reference.run(feeds(rows, length))["sentence_embedding"]
    np.testing.assert_allclose(outputs["sentence_embedding"], expected, atol=ALLOWED[variant.precision])


def test_a_malformed_feed_raises_and_the_session_lives(session: Session) -> None:
    with pytest.raises(Exception, match=r"(?s)."):
        session.run({"nonsense": np.zeros((1, 1), np.int64)})

    assert session.run(feeds(1, 3))["sentence_embedding"].shape == (1, 32)


def test_closing_twice_is_allowed_and_running_afterwards_is_not(session: Session) -> None:
    session.close()
    session.close()

    with pytest.raises(RuntimeError, match="closed"):
        session.run(feeds(1, 3))


def test_a_loaded_model_runs_warms_up_and_probes(files: ModelFiles) -> None:
    model: LoadedModel = load_executor(files, "fp32")

    report = model.executor.warm_up()
    model.executor.probe()

    assert {warm.shape for warm in report.passes} == set(model.executor.shapes.warm_shapes())
    assert (model.provider, model.digest, model.ref) == ("cpu", files.digest, files.ref)


def bound_to_cpu(files: ModelFiles, kept: int = 8) -> tuple[BoundRuns, InferenceSession]:
    """Bound runs as on a GPU, with the CPU's memory as the device's."""
    session = InferenceSession(str(files.path / "model.fp32.onnx"), providers=["CPUExecutionProvider"])
    return BoundRuns(onnxruntime, session, ["sentence_embedding"], "cpu", kept), session


def test_bound_runs_give_what_unbound_ones_do_whatever_ran_before(files: ModelFiles) -> None:
    bound, session = bound_to_cpu(files, kept=2)
    shapes = [(1, 7), (5, 7), (1, 7), (3, 20), (5, 7), (1, 7)]

    results = [bound.run(feeds(*shape))[0] for shape in shapes]

    for shape, result in zip(shapes, results, strict=True):
        np.testing.assert_array_equal(result, session.run(None, feeds(*shape))[0])


def test_bound_inputs_are_filled_in_place_and_old_outputs_stay(files: ModelFiles) -> None:
    bound, session = bound_to_cpu(files)
    first, second = feeds(2, 9), {**feeds(2, 9), "input_ids": feeds(2, 9)["input_ids"][::-1].copy()}

    before = bound.run(first)[0]
    kept = before.copy()
    after = bound.run(second)[0]

    np.testing.assert_array_equal(before, kept)
    np.testing.assert_array_equal(after, session.run(None, second)[0])


def test_a_bound_session_keeps_the_contract(files: ModelFiles) -> None:
    variant = files.config.variant("fp32")
    _, inner = bound_to_cpu(files)
    session = OnnxSession(inner, variant, bind_to="cpu")

    with pytest.raises(Exception, match=r"(?s)."):
        session.run({"nonsense": np.zeros((1, 1), np.int64)})
    outputs = session.run(feeds(3, 5), shrink=True)
    assert outputs["sentence_embedding"].shape == (3, 32)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(feeds(3, 5))


def test_a_missing_graph_is_a_model_error_with_its_path(tmp_path: Path) -> None:
    variant = VARIANTS[0]

    with pytest.raises(ModelError, match=r"model\.fp32\.onnx"):
        OnnxRuntime().load(tmp_path, variant, OPTIONS)


@pytest.mark.parametrize(
    ("provider", "precision", "reason"),
    [
        ("abacus", "fp32", "'abacus' is not known"),
        ("cpu", "int8", "no VNNI"),
        ("openvino", "bf16", "no instructions for bf16"),
    ],
)
def test_what_the_machine_cannot_do_is_refused_before_loading(
    tmp_path: Path, provider: str, precision: Precision, reason: str
) -> None:
    old = OnnxRuntime(Cpu(machine="x86_64", model="old", flags=frozenset({"avx2"})))
    variant = variant_of(provider, precision)

    assert reason in str(old.refusal(variant))
    with pytest.raises(RuntimeUnavailableError, match=reason):
        old.load(tmp_path, variant, OPTIONS)


def test_a_provider_that_is_not_got_is_an_error_and_no_slower_answer(files: ModelFiles) -> None:
    """onnxruntime falls back to the CPU in silence; whoever asked for a GPU must hear of it."""
    if OnnxRuntime().refusal(CUDA) is None:
        assert OnnxRuntime().load(files.path, CUDA, OPTIONS).provider == "cuda"
    else:
        with pytest.raises(RuntimeUnavailableError, match="CUDAExecutionProvider"):
            OnnxRuntime().load(files.path, CUDA, OPTIONS)
