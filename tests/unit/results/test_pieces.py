"""Large results: pieces are together what the codec makes in one go; blobs are `.npy` files where they can be."""

import io
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from batchfleet.jobs.job import JobError
from batchfleet.results import codec
from batchfleet.results.codec import NotRepresentableError
from batchfleet.results.layout import CorruptResultError
from batchfleet.results.pieces import FORMS, PIECE_BYTES, json_pieces, msgpack_pieces, npy_pieces

LARGE = [np.arange(50_000, dtype=np.float32) + index for index in range(9)]
FAULT = JobError("input_invalid", "no text", 1)
RESULTS = {
    "one array": codec.encode_tensors(LARGE),
    "small": codec.encode_tensors([np.ones(3, np.float16)]),
    "numbers": codec.encode_tensors([np.asarray(1.5), np.asarray(2.5)]),
    "no columns": codec.encode_tensors([np.ones(0, np.int64)] * 3),
    "matrices": codec.encode_tensors([np.ones((400, 300), np.int8)] * 5),
    "truths": codec.encode_tensors([np.asarray([True, False])] * 2),
    "ragged": codec.encode_tensors([np.ones(100_000), np.ones(2), np.asarray(3)]),
    "with a fault": codec.encode_tensors([LARGE[0], None, LARGE[2]], [FAULT]),
    "all faults": codec.encode_tensors([None], [JobError("input_invalid", "no text", 0)]),
    "labels": codec.encode_values([{"label": "é"}, {"label": "b"}]),
    "labels with a fault": codec.encode_values([{"label": "a"}, None], [FAULT]),
}
WHOLE = {
    "application/json": codec.to_json,
    "application/x-npy": codec.to_npy,
    "application/msgpack": codec.to_msgpack,
    "application/x-msgpack": codec.to_msgpack,
}


@pytest.mark.parametrize("stored", ["row", "blob"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RESULTS)
def test_the_pieces_are_the_whole(name: str, form: str, stored: str) -> None:
    described, data = RESULTS[name] if stored == "row" else codec.as_blob(*RESULTS[name])
    try:
        expected = WHOLE[form](*RESULTS[name])
    except NotRepresentableError:
        with pytest.raises(NotRepresentableError):
            FORMS[form](described, data)
        return

    assert b"".join(FORMS[form](described, data)) == expected
    assert WHOLE[form](described, data) == expected


def test_no_piece_is_much_larger_than_asked_for() -> None:
    described, data = RESULTS["one array"]

    pieces = {form: [len(piece) for piece in make(described, data)] for form, make in FORMS.items()}

    assert all(len(sizes) > 5 for sizes in pieces.values())
    assert max(pieces["application/x-npy"]) == max(pieces["application/msgpack"]) == PIECE_BYTES
    assert orjson.loads(b"".join(json_pieces(described, data)))["values"][8][-1] == 50_007.0


@pytest.mark.parametrize("make", [json_pieces, npy_pieces, msgpack_pieces])
def test_what_does_not_fit_is_found_before_the_first_piece(make: Any) -> None:
    described, data = codec.as_blob(*RESULTS["one array"])

    with pytest.raises(CorruptResultError):
        make(described, data[:-1])


@pytest.mark.parametrize(
    ("name", "is_file"), [("one array", True), ("numbers", True), ("matrices", True), ("ragged", False),
                          ("with a fault", False), ("labels", False)],
)  # fmt: skip
def test_a_blob_is_an_npy_file_where_the_result_is_one_array(name: str, is_file: bool) -> None:
    described, data = codec.as_blob(*RESULTS[name])

    assert codec.is_npy(described) is is_file
    assert not codec.is_npy(RESULTS[name][0])
    assert codec.as_blob(described, data) == (described, data)
    if is_file:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        assert loaded.tolist() == [row.tolist() for row in codec.decode(*RESULTS[name]).values]
        assert [row.tolist() for row in codec.decode(described, data).values] == loaded.tolist()
    else:
        assert (described, data) == RESULTS[name]


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_msgpack_of_every_size_can_be_read(size: int) -> None:
    described, data = codec.encode_tensors([np.zeros(size, np.uint8)])

    assert msgspec.msgpack.decode(b"".join(msgpack_pieces(described, data)))["values"]["data"] == bytes(size)
