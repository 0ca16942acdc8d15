"""Rows of different lengths in one batch, as bytes, against numpy."""

import tracemalloc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.batcher.padding import Filled, Padder, PaddingTally
from services.core.arrays import NUMPY_DTYPE, decode
from services.core.batching_spec import Padding
from services.core.errors import InvalidRequestError
from services.core.known_headers import Data
from services.core.signature import Signature, TensorSpec

ANY = -1


class Member(NamedTuple):
    """As a Pending is."""

    inputs: list[Data]
    rows: int
    length: int


def signature(*specs: tuple[str, str, tuple[int, ...]]) -> Signature:
    return Signature(tuple(TensorSpec(*spec) for spec in specs), (TensorSpec("y", "FP32", (ANY, ANY)),), batches=True)


BOTH = signature(
    ("ids", "INT32", (ANY, ANY)),
    ("mask", "INT64", (ANY, ANY)),
    ("vectors", "FP32", (ANY, ANY, 2)),
    ("length", "INT32", (ANY, 1)),
    ("bias", "FP32", (ANY,)),
)
PAD_BOTH = Padding(inputs={"ids": 7, "vectors": -0.5}, mask="mask", length="length")


def padder(padding: Padding = PAD_BOTH, model: Signature = BOTH) -> tuple[Padder, PaddingTally]:
    tally = PaddingTally()
    return Padder(padding, model, tally), tally


def members_of(shapes: Sequence[tuple[int, int]], rng: np.random.Generator) -> list[list[np.ndarray]]:
    """ids, vectors, bias for each (rows, length)."""
    return [
        [
            rng.integers(-9, 9, (rows, length), np.int32),
            rng.random((rows, length, 2), np.float32),
            rng.random(rows, np.float32),
        ]
        for rows, length in shapes
    ]


def arrays_of(batch: Sequence[Filled]) -> dict[str, np.ndarray]:
    return {spec.name: decode(spec.datatype, shape, b"".join(pieces)) for spec, shape, pieces in batch}


def filled(shapes: Sequence[tuple[int, int]], padding: Padding = PAD_BOTH) -> tuple[dict[str, np.ndarray], Any]:
    """What the model gets for members of these (rows, length), all of one place; and what they sent."""
    made, _ = padder(padding)
    sent = members_of(shapes, np.random.default_rng(3))
    places = {made.place(((length,), (length, 2), ())).shapes for _, length in shapes}
    (place,) = places
    members = [
        Member([array.tobytes() for array in arrays], rows, length)
        for arrays, (rows, length) in zip(sent, shapes, strict=True)
    ]
    return arrays_of(made.fill(members, place)), sent


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(5, 8)), min_size=1, max_size=6))
def test_every_row_is_filled_up_with_its_own_value_and_told_of(shapes: list[tuple[int, int]]) -> None:
    batch, sent = filled(shapes)
    row = 0
    for (rows, length), (ids, vectors, bias) in zip(shapes, sent, strict=True):
        mine = slice(row, row + rows)

        assert np.array_equal(batch["ids"][mine, :length], ids)
        assert (batch["ids"][mine, length:] == 7).all()
        assert np.array_equal(batch["vectors"][mine, :length], vectors)
        assert (batch["vectors"][mine, length:] == -0.5).all()
        assert np.array_equal(batch["bias"][mine], bias)
        assert (batch["mask"][mine] == (np.arange(8) < length)).all()
        assert (batch["length"][mine] == length).all()
        row += rows
    assert {name: array.shape for name, array in batch.items()} == {
        "ids": (row, 8), "vectors": (row, 8, 2), "bias": (row,), "mask": (row, 8), "length": (row, 1)
    }  # fmt: skip


def test_no_length_at_all_shares_a_batch_with_one() -> None:
    batch, _ = filled([(2, 0), (1, 1), (0, 0)])

    assert batch["ids"][:2].tolist() == [[7], [7]]
    assert batch["mask"].tolist() == [[0], [0], [1]]
    assert batch["length"].tolist() == [[0], [0], [1]]


def test_a_length_beyond_the_largest_size_is_not_filled_up() -> None:
    batch, sent = filled([(1, 9), (2, 9)], PAD_BOTH.model_copy(update={"sizes": (4, 8)}))

    assert np.array_equal(batch["ids"], np.concatenate([sent[0][0], sent[1][0]]))
    assert (batch["mask"] == 1).all()


@pytest.mark.parametrize("datatype", [*NUMPY_DTYPE, "BF16"])
def test_any_datatype_is_filled_up_and_masked_by_any(datatype: str) -> None:
    model = signature(("x", datatype, (ANY, ANY)), ("m", datatype, (ANY, ANY)))
    made, _ = padder(Padding(inputs={"x": 1}, mask="m"), model)
    size = 2 if datatype == "BF16" else NUMPY_DTYPE[datatype].itemsize
    one = b"\x80\x3f" if datatype == "BF16" else np.ones(1, NUMPY_DTYPE[datatype]).tobytes()
    own, zero = b"\1" * size * 3, bytes(size)
    place = made.place(((3,),))
    x, mask = made.fill([Member([own], 1, 3)], place.shapes)

    assert b"".join(x.pieces) == own + one
    assert b"".join(mask.pieces) == one * 3 + zero
    assert (x.shape, mask.shape, mask.spec.datatype) == ([1, 4], [1, 4], datatype)


@pytest.mark.parametrize("shape", [(ANY,), (ANY, 1), (ANY, ANY)])
def test_the_length_comes_in_the_rank_that_the_model_has(shape: tuple[int, ...]) -> None:
    made, _ = padder(Padding(inputs={"x": 0}, length="n"), signature(("x", "FP32", (ANY, ANY)), ("n", "FP16", shape)))
    _, length = made.fill([Member([bytes(24)], 2, 3)], ((4,),))

    assert np.frombuffer(b"".join(length.pieces), "<f2").tolist() == [3, 3]
    assert length.shape == [2, 1][: len(shape)]


def test_large_rows_are_not_copied() -> None:
    model = signature(("x", "FP32", (ANY, ANY, 768)), ("m", "FP32", (ANY, ANY)))
    made, _ = padder(Padding(inputs={"x": 0}, mask="m"), model)
    data = memoryview(bytes(3 * 768 * 4))
    place = made.place(((3, 768),))
    x, _ = made.fill([Member([data], 1, 3)], place.shapes)

    assert x.pieces[0] is data
    assert place.extra_bytes == 768 * 4 + 4 * 4


def test_inputs_of_different_lengths_are_refused() -> None:
    made, _ = padder()

    with pytest.raises(InvalidRequestError) as caught:
        made.place(((3,), (4, 2), ()))
    assert str(caught.value) == "padded inputs must have one length (dimension 1), they have 'ids' 3, 'vectors' 4"


def test_a_length_that_its_input_cannot_tell_is_refused() -> None:
    made, _ = padder(Padding(inputs={"x": 0}, length="n"), signature(("x", "FP32", (ANY, ANY)), ("n", "INT8", (ANY,))))
    made.place(((127,),))

    with pytest.raises(InvalidRequestError, match="rows have length 128, input 'n' of datatype INT8 tells up to 127"):
        made.place(((128,),))


def test_a_place_says_what_a_row_takes_beside_what_was_sent() -> None:
    made, _ = padder()
    place = made.place(((5,), (5, 2), ()))

    assert place.length == 5
    assert place.shapes == ((8,), (8, 2), ())
    assert place.extra_bytes == 3 * 4 + 3 * 8 + 8 * 8 + 4
    assert made.own(place.shapes, 5) == ((5,), (5, 2), ())


def test_shapes_that_come_once_are_not_kept_for_ever() -> None:
    made, _ = padder(Padding(inputs={"x": 0}, mask="m", sizes=(4,)), signature(
        ("x", "FP32", (ANY, ANY)), ("m", "FP32", (ANY, ANY))
    ))  # fmt: skip
    tracemalloc.start()
    for length in range(20_000):
        made.place(((length,),))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 1_000_000


def test_an_absurd_shape_without_rows_takes_no_memory() -> None:
    made, _ = padder(Padding(inputs={"x": 0}, mask="m"), signature(
        ("x", "FP32", (ANY, ANY, ANY)), ("m", "FP32", (ANY, ANY))
    ))  # fmt: skip
    for inner in ((2**38 + 1, 2), (0, 2**39)):
        place = made.place((inner,))
        batch = made.fill([Member([b""], 0, inner[0])], place.shapes)

        assert [b"".join(each.pieces) for each in batch] == [b"", b""]


def test_what_was_filled_up_is_counted_in_positions() -> None:
    made, tally = padder()
    rng = np.random.default_rng(1)
    members = [
        Member([array.tobytes() for array in arrays], rows, length)
        for arrays, (rows, length) in zip(members_of([(1, 5), (2, 8)], rng), [(1, 5), (2, 8)], strict=True)
    ]
    made.fill(members, ((8,), (8, 2), ()))

    assert (tally.real, tally.filled) == (21, 3)
    assert tally.shares.sum == 3 / 24
