import numpy as np
import pytest

from services.core.batching_spec import ControlInput, SequenceState
from services.core.signature import Signature, TensorSpec
from services.runtime import sequence_state
from services.runtime.backends import BadArtifactError
from services.runtime.sequence_state import LostStateError, SequenceStates, fitted

STATE = SequenceState(input_name="h", output_name="h_next")
X, Y = TensorSpec("x", "FP32", (-1, 1)), TensorSpec("y", "FP32", (-1, 1))
H, H_NEXT = TensorSpec("h", "FP32", (-1, 2)), TensorSpec("h_next", "FP32", (-1, 2))
START = TensorSpec("start", "BOOL", (-1, 1))


def signature(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = (Y, H_NEXT), batches: bool = True) -> Signature:
    return Signature((X, *inputs), outputs, batches)


def states(*, batches: bool = True) -> SequenceStates:
    return SequenceStates([STATE], signature(H, batches=batches))


def row(number: int, *, start: bool = False, end: bool = False) -> int:
    return number << 2 | start << 1 | end


def after(*rows: list[float]) -> dict[str, np.ndarray]:
    return {"y": np.zeros((len(rows), 1), np.float32), "h_next": np.array(rows, np.float32)}


def test_a_sequence_starts_with_zeros_and_gets_back_its_own_row() -> None:
    kept = states()

    first = kept.before("link", [row(1, start=True), row(2, start=True)], 2)["h"]
    kept.keep("link", [row(1, start=True), row(2, start=True)], after([1, 2], [3, 4]))
    then = kept.before("link", [row(2), row(1)], 2)["h"]

    assert first.tolist() == [[0, 0], [0, 0]]
    assert then.tolist() == [[3, 4], [1, 2]]
    assert then.dtype == np.float32


def test_a_start_forgets_what_was_before_it() -> None:
    kept = states()
    kept.keep("link", [row(1)], after([1, 2]))

    assert kept.before("link", [row(1, start=True)], 1)["h"].tolist() == [[0, 0]]


def test_an_empty_row_is_zeros_and_keeps_nothing() -> None:
    kept = states()
    kept.keep("link", [0, row(5)], after([1, 1], [7, 8]))

    assert kept.before("link", [0, row(5)], 2)["h"].tolist() == [[0, 0], [7, 8]]
    assert len(kept) == 1


@pytest.mark.parametrize("how", ["end", "over", "gone"])
def test_a_sequence_that_is_over_keeps_nothing(how: str) -> None:
    kept = states()
    kept.keep("link", [row(1, start=True)], after([1, 2]))
    if how == "end":
        kept.keep("link", [row(1, end=True)], after([1, 2]))
        kept.close("link", [row(1, end=True)])
    else:
        kept.forget("link", [1, 9] if how == "over" else None)

    assert len(kept) == 0
    with pytest.raises(LostStateError, match="sequence 1 has no state here"):
        kept.before("link", [row(1)], 1)


def test_numbers_of_one_peer_mean_nothing_for_another() -> None:
    kept = states()
    kept.keep("one", [row(1)], after([1, 2]))
    kept.keep("other", [row(1)], after([3, 4]))
    kept.forget("one")

    assert kept.before("other", [row(1)], 1)["h"].tolist() == [[3, 4]]
    with pytest.raises(LostStateError):
        kept.before("one", [row(1)], 1)


def test_a_batch_without_a_number_for_each_row_is_refused() -> None:
    with pytest.raises(LostStateError, match="1 sequences are named for 2 rows"):
        states().before("link", [row(1, start=True)], 2)


def test_sequences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_state, "_MOST", 2)
    kept = states()
    rows = [row(1, start=True), row(2, start=True)]
    kept.before("link", rows, 2)
    kept.keep("link", rows, after([1, 1], [2, 2]))

    with pytest.raises(LostStateError, match="2 sequences keep state here, 1 more would be over 2"):
        kept.before("link", [row(3, start=True)], 1)


def test_a_model_that_does_not_batch_keeps_its_outputs_whole() -> None:
    kept = states(batches=False)

    first = kept.before("link", [row(1, start=True)], 1)["h"]
    kept.keep("link", [row(1, start=True)], after([1, 2], [3, 4], [5, 6]))

    assert first.tolist() == [[0, 0]]
    assert kept.before("link", [row(1)], 1)["h"].tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    "wrong", [np.zeros((1, 3), np.float32), np.zeros((2, 2), np.float32), np.zeros((1, 2)), np.zeros(1, np.float32)]
)
def test_a_state_output_that_the_next_run_cannot_take_is_an_error(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="which is not what state input h FP32"):
        states().keep("link", [row(1)], {"y": np.zeros((1, 1)), "h_next": wrong})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (signature(), "names input 'h'; the artifact's inputs are x"),
        (signature(H, outputs=(Y,)), "names output 'h_next'; the artifact's outputs are y"),
        (signature(H, outputs=(Y, H_NEXT._replace(datatype="FP64"))), "cannot be state input"),
        (signature(H, outputs=(Y, H_NEXT._replace(shape=(-1, 3)))), "cannot be state input"),
        (
            signature(H._replace(datatype="BYTES"), outputs=(Y, H_NEXT._replace(datatype="BYTES"))),
            "a state has numbers, not BYTES",
        ),
    ],
)
def test_an_artifact_without_such_states_is_refused_with_the_reason(given: Signature, text: str) -> None:
    with pytest.raises(BadArtifactError, match=text):
        fitted(given, [STATE], [])


@pytest.mark.parametrize(
    ("spec", "kind", "text"),
    [
        (X, "START", "names input 'start'"),
        (START._replace(datatype="FP64"), "START", "expected one of BOOL, INT32, FP32"),
        (START, "CORRID", "expected one of UINT64, INT64, UINT32, INT32, BYTES"),
        (START._replace(shape=(-1, 2)), "READY", "expected one element a row"),
    ],
)
def test_an_artifact_without_such_control_inputs_is_refused_with_the_reason(
    spec: TensorSpec, kind: str, text: str
) -> None:
    control = ControlInput.model_validate({"name": "start", "kind": kind})

    with pytest.raises(BadArtifactError, match=text):
        fitted(signature(spec), [], [control])


def test_states_of_any_shape_are_kept_but_not_batched() -> None:
    wide, wide_next = H._replace(shape=(-1, -1)), H_NEXT._replace(shape=(-1, -1))
    given = signature(wide, START, outputs=(Y, wide_next))
    control = ControlInput(name="start", kind="START")

    found, note = fitted(given, [STATE], [control])

    assert not found.batches
    assert "may differ in shape between sequences" in note
    assert fitted(signature(H, START), [STATE], [control]) == (signature(H, START), "")
