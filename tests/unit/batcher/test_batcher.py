"""One model version's batcher, with time and workers moved by hand."""

import pytest

from services.batcher.policy import BatchPolicy, WaitPolicy
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE
from services.core.signature import Signature, TensorSpec
from tests.support.batching import ECHO, MS, Bench, ints
from turnout.v1 import link_pb2 as pb


def test_a_request_leaves_at_once_when_a_slot_is_free() -> None:
    bench = Bench()
    bench.send([7])

    assert bench.puppet.rows() == [1]


def test_requests_gather_while_the_slots_are_busy() -> None:
    bench = Bench(slots=2)
    for value in range(12):
        bench.send([value])

    assert bench.puppet.rows() == [1, 1]

    bench.puppet.echo()

    assert bench.puppet.rows() == [1, 10]


def test_each_caller_gets_its_rows() -> None:
    bench = Bench()
    first, *others = bench.send([1], [2, 3], [4, 5, 6])
    bench.puppet.echo()

    assert [bench.values(number) for number in (first, *others)] == [[1], [2, 3], [4, 5, 6]]
    assert list(bench.replies()[others[1]].outputs[0].shape) == [3]
    assert bench.replies()[first].outputs[0].name == "y"


def test_an_answer_says_how_long_each_stage_took_and_with_whom_it_ran() -> None:
    bench = Bench()
    bench.send([0])
    bench.time.advance(MS)
    bench.send([1, 2])
    bench.time.advance(2 * MS)
    bench.puppet.echo()
    bench.time.advance(5 * MS)
    bench.puppet.echo()
    reply = bench.replies()[2]

    assert list(reply.stages_ns) == [2 * MS, 0, 5 * MS - 6, 1, 2, 3, 0]
    assert (reply.total_ns, reply.batch_rows, reply.digest) == (7 * MS, 2, "sha256:1")
    assert reply.executed == pb.EXECUTED_YES


def test_no_batch_exceeds_max_batch_size_rows() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=8))
    bench.send([0])
    bench.send([1] * 5, [2] * 5, [3] * 5)
    seen = []
    while bench.puppet.batches():
        seen += bench.puppet.rows()
        bench.puppet.echo()

    assert seen == [1, 5, 5, 5]


@pytest.mark.parametrize("most", [1, 2, 7])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_request_of_about_max_batch_size_comes_back_whole(most: int, extra: int) -> None:
    rows = list(range(100, 100 + most + extra))
    bench = Bench(BatchPolicy(max_batch_rows=most))
    (number,) = bench.send(rows)
    sizes = []
    while bench.puppet.batches():
        sizes += bench.puppet.rows()
        bench.puppet.echo()

    assert bench.values(number) == rows
    assert max(sizes) <= most
    assert not bench.caller.pending


def test_a_request_of_no_rows_is_answered_with_no_rows() -> None:
    bench = Bench()
    (number,) = bench.send([])
    bench.puppet.echo()

    assert list(bench.replies()[number].outputs[0].shape) == [0]
    assert bench.values(number) == []


def test_a_large_request_is_cut_and_rejoined_in_order() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4), slots=3)
    (number,) = bench.send(range(10))
    third, second, first = reversed(bench.puppet.batches())
    for batch in (second, third, first):
        bench.puppet.echo(batch)

    assert bench.values(number) == list(range(10))
    assert list(bench.replies()[number].outputs[0].shape) == [10]


def test_when_a_part_fails_the_request_fails_once_and_its_other_parts_leave() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4))
    (number,) = bench.send(range(10))
    bench.puppet.error(INTERNAL, "cannot")

    assert bench.codes() == {number: INTERNAL}
    assert bench.puppet.batches() == []
    assert bench.batcher.is_idle


def test_more_rows_than_max_request_rows_are_refused_with_both_numbers() -> None:
    bench = Bench(BatchPolicy(max_request_rows=4))
    (number,) = bench.send(range(5))

    assert bench.codes() == {number: INVALID_ARGUMENT}
    assert bench.answers[number].message == "request has 5 rows, echo/1 takes at most 4 in one request"


def test_a_full_queue_refuses_at_once_with_numbers_and_a_retry_hint() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2, max_queue_rows=3))
    bench.send([0])
    bench.send([1], [2], [3], [4])

    assert bench.codes() == {5: UNAVAILABLE}
    assert "3 of 3 rows wait, 1 more do not fit" in bench.answers[5].message
    assert bench.answers[5].retry_after_us > 0
    assert bench.answers[5].executed == pb.EXECUTED_NO


def test_a_queue_full_of_bytes_refuses_too() -> None:
    bench = Bench(BatchPolicy(max_queue_bytes=8, max_request_bytes=12))
    bench.send([0])
    bench.send([1, 2], [3])
    (too_large,) = bench.send([1, 2, 3, 4])

    assert bench.codes() == {3: UNAVAILABLE, too_large: RESOURCE_EXHAUSTED}
    assert "8 of 8 bytes wait, 4 more do not fit" in bench.answers[3].message


def test_what_the_whole_queue_cannot_hold_is_too_large_not_told_to_come_again() -> None:
    bench = Bench(BatchPolicy(max_queue_bytes=8, max_request_bytes=100))
    (number,) = bench.send([1, 2, 3])

    assert bench.codes() == {number: RESOURCE_EXHAUSTED}
    assert "inputs have 12 bytes, echo/1 takes at most 8 in one request" in bench.answers[number].message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datatype": "FP32"}, "is INT32, not FP32"),
        ({"name": "z"}, "has no input 'z'"),
        ({"data": b"12345"}, "has 5 bytes"),
        ({"shape": [2]}, "the request says 1 rows, its inputs have 2"),
    ],
)
def test_inputs_that_could_harm_a_neighbour_are_refused(change: dict[str, object], message: str) -> None:
    bench = Bench()
    request = ints(9, [1])
    if "shape" in change:
        request.inputs[0].data += b"1234"
    for field, value in change.items():
        if field == "shape":
            request.inputs[0].shape[:] = [2]
        else:
            setattr(request.inputs[0], field, value)
    bench.offer(request)

    assert bench.codes() == {9: INVALID_ARGUMENT}
    assert message in bench.answers[9].message


def test_a_cancelled_request_in_a_running_batch_harms_no_neighbour() -> None:
    bench = Bench()
    first, second, third = bench.send([1], [2], [3])
    bench.cancel(second)
    bench.puppet.echo()

    assert {number: bench.values(number) for number in bench.codes()} == {first: [1], third: [3]}
    assert bench.batcher.is_idle


def test_a_request_cancelled_in_the_queue_never_costs_a_launch() -> None:
    bench = Bench()
    bench.send([0])
    (second,) = bench.send([1])
    bench.cancel(second)
    bench.puppet.echo()

    assert bench.puppet.batches() == []
    assert bench.codes() == {1: 0}
    assert bench.batcher.lobby.tally.cancelled == [1, 0]


def test_a_storm_of_cancelled_requests_leaves_nothing_behind() -> None:
    bench = Bench(BatchPolicy(max_queue_rows=10))
    bench.send([0])
    for _ in range(500):
        (number,) = bench.send([1])
        bench.cancel(number)
    (bucket,) = bench.batcher.lobby.queue._primary

    assert bench.batcher.lobby.queue.rows == 0
    assert len(bucket.members) < 100


def test_a_deadline_fires_on_time_while_the_only_slot_is_busy() -> None:
    bench = Bench()
    bench.send([0])
    (number,) = bench.send([1], deadline_us=20_000)
    bench.time.advance(19 * MS)

    assert bench.codes() == {}

    bench.time.advance(2 * MS)

    assert bench.codes() == {number: DEADLINE_EXCEEDED}
    assert bench.answers[number].executed == pb.EXECUTED_NO


def test_a_deadline_fires_on_time_while_the_request_runs() -> None:
    bench = Bench()
    (number,) = bench.send([1], deadline_us=20_000)
    bench.time.advance(21 * MS)

    assert bench.codes() == {number: DEADLINE_EXCEEDED}
    assert bench.answers[number].executed == pb.EXECUTED_MAYBE


def test_an_earlier_deadline_that_comes_later_fires_first() -> None:
    bench = Bench()
    bench.send([0])
    late, early = bench.send([1], deadline_us=50_000) + bench.send([2], deadline_us=10_000)
    bench.time.advance(11 * MS)

    assert list(bench.codes()) == [early]

    bench.time.advance(40 * MS)

    assert list(bench.codes()) == [late, early]


@pytest.mark.parametrize(("default_us", "asked_us", "waits_ms"), [(0, 5000, 5), (9000, 0, 9), (9000, 5000, 5)])
def test_a_queue_timeout_bounds_only_the_wait(default_us: int, asked_us: int, waits_ms: int) -> None:
    bench = Bench(BatchPolicy(wait=WaitPolicy(timeout_ns=default_us * 1000)))
    bench.send([0], queue_timeout_us=asked_us)
    (number,) = bench.send([1], queue_timeout_us=asked_us)
    bench.time.advance(waits_ms * MS - MS)

    assert bench.codes() == {}

    bench.time.advance(2 * MS)

    assert bench.codes() == {number: UNAVAILABLE}
    assert "queue timeout" in bench.answers[number].message


def test_an_idle_batcher_wakes_zero_times() -> None:
    bench = Bench()
    bench.send([0], deadline_us=30_000_000)
    bench.puppet.echo()
    bench.time.advance(31_000 * MS)
    before = bench.time.wakes
    bench.time.advance(3_600_000 * MS)

    assert bench.time.wakes - before == 0


def test_what_cannot_meet_its_deadline_is_refused_at_the_door() -> None:
    bench = Bench()
    for _ in range(10):
        bench.send([0])
        bench.time.advance(50 * MS)
        bench.puppet.echo()
    tight, ample = bench.send([1], deadline_us=20_000) + bench.send([2], deadline_us=200_000)

    assert bench.codes()[tight] == UNAVAILABLE
    assert "50.0 ms to run" in bench.answers[tight].message
    assert bench.puppet.rows() == [1]
    assert ample not in bench.codes()


def test_an_estimate_that_nothing_confirms_any_more_refuses_nobody() -> None:
    bench = Bench()
    for _ in range(10):
        bench.send([0])
        bench.time.advance(50 * MS)
        bench.puppet.echo()
    bench.time.advance(2_000 * MS)
    (number,) = bench.send([1], deadline_us=20_000)

    assert number not in bench.codes()


def test_no_member_is_made_late_by_those_who_join_it() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=64))
    for rows in (1, 10, 20) * 4:  # 10 ms + 1 ms a row
        bench.send([0] * rows)
        bench.time.advance((10 + rows) * MS)
        bench.puppet.echo()
    bench.send([0])
    bench.send(*[[n] for n in range(60)], deadline_us=60_000)
    bench.time.advance(11 * MS)
    bench.puppet.echo()

    (rows,) = bench.puppet.rows()
    assert 33 <= rows <= 40  # 60 ms are left, or 49 with 11 to wait: 39 rows, without room for error


def test_a_worker_that_is_busy_for_long_gets_its_next_batch_only_shortly_before_it_needs_it() -> None:
    bench = Bench(slots=2)
    for _ in range(10):
        bench.send([0])
        bench.time.advance(50 * MS)
        bench.puppet.echo()
    bench.send([1])
    bench.send([2])
    bench.time.advance(40 * MS)
    bench.send([3])

    assert bench.puppet.rows() == [1]

    bench.time.advance(9 * MS)

    assert bench.puppet.rows() == [1, 2]


def test_with_a_delay_a_batch_waits_for_partners_but_no_longer() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=4, delay_ns=5 * MS))
    bench.send([0], [1])

    assert bench.puppet.rows() == []

    bench.time.advance(6 * MS)

    assert bench.puppet.rows() == [2]


def test_with_a_delay_a_full_batch_or_a_preferred_one_leaves_at_once() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=8, preferred_rows=(2, 4), delay_ns=5 * MS), slots=2)
    bench.send(*[[n] for n in range(5)])

    assert bench.puppet.rows() == [4]

    bench.send(*[[n] for n in range(7)])

    assert bench.puppet.rows() == [4, 8]


def test_shadow_requests_run_only_when_nobody_else_waits_and_never_beside_others() -> None:
    bench = Bench()
    bench.send([0])
    (shadow,) = bench.send([1], shadow=True)
    primary = bench.send([2], [3])
    bench.puppet.echo()

    assert bench.puppet.rows() == [2]

    bench.puppet.echo()
    bench.puppet.echo()

    assert set(bench.codes()) == {1, shadow, *primary}


def test_shadow_requests_make_room_for_others() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2, max_queue_rows=3))
    bench.send([0])
    bench.send([1], [2], [3], shadow=True)
    (primary,) = bench.send([4])
    (late_shadow,) = bench.send([5], shadow=True)

    assert bench.codes() == {4: UNAVAILABLE, late_shadow: UNAVAILABLE}
    assert primary not in bench.answers


def test_requests_that_want_different_outputs_share_a_batch_and_get_theirs() -> None:
    outputs = (TensorSpec("y", "INT32", (-1,)), TensorSpec("y2", "INT32", (-1,)))
    bench = Bench(signature=Signature(ECHO.inputs, outputs, batches=True))
    bench.send([0])
    one, both = bench.send([1], outputs=["y2"]) + bench.send([2])
    bench.puppet.echo()
    (batch,) = bench.puppet.batches()
    reply = pb.Reply(id=batch.id, executed=pb.EXECUTED_YES)
    for name in ("y", "y2"):
        reply.outputs.add(name=name, datatype="INT32", shape=[2], data=batch.inputs[0].data)
    bench.puppet.reply(reply)

    assert [output.name for output in bench.replies()[one].outputs] == ["y2"]
    assert [output.name for output in bench.replies()[both].outputs] == ["y", "y2"]


@pytest.mark.parametrize("shape", [[2], [4], [1, 3], []])
def test_a_model_that_returns_the_wrong_rows_fails_its_batch_and_the_batcher_lives_on(shape: list[int]) -> None:
    bench = Bench()
    bench.send([1], [2], [3])
    (batch,) = bench.puppet.batches()
    reply = pb.Reply(id=batch.id, executed=pb.EXECUTED_YES)
    reply.outputs.add(name="y", datatype="INT32", shape=shape, data=b"\0" * 12)
    bench.puppet.reply(reply)

    assert bench.codes() == {1: INTERNAL, 2: INTERNAL, 3: INTERNAL}
    assert "for a batch of 3 rows" in bench.answers[1].message

    (number,) = bench.send([4])
    bench.puppet.echo()

    assert bench.values(number) == [4]


def test_a_new_policy_takes_effect_without_losing_who_waits() -> None:
    bench = Bench(BatchPolicy(max_batch_rows=2))
    bench.send([0])
    bench.send(*[[n] for n in range(6)])
    bench.batcher.apply(BatchPolicy(max_batch_rows=4))
    bench.puppet.echo()

    assert bench.puppet.rows() == [4]


def test_a_worker_that_does_not_begin_gives_its_requests_back() -> None:
    bench = Bench()
    (number,) = bench.send([1])
    bench.puppet.error(UNAVAILABLE, "draining", pb.EXECUTED_NO)

    assert bench.puppet.rows() == [1]

    bench.puppet.echo()

    assert bench.values(number) == [1]
    assert bench.answers[number].retries == 1


def test_a_request_tried_twice_elsewhere_is_not_tried_here() -> None:
    bench = Bench()
    (number,) = bench.send([1], tries=2)

    assert bench.codes() == {number: INTERNAL}


def test_another_digest_than_the_wanted_one_is_said() -> None:
    bench = Bench()
    (number,) = bench.send([1], digest="sha256:2")

    assert "has digest sha256:1, the request wants sha256:2" in bench.replies()[number].message


def test_the_least_loaded_worker_is_chosen() -> None:
    bench = Bench(workers=2, slots=2)
    for value in range(4):
        bench.send([value])

    assert [len(puppet.batches()) for puppet in bench.puppets] == [2, 2]


def test_while_it_drains_nobody_gets_in_and_everybody_in_is_answered() -> None:
    bench = Bench()
    quiet: list[bool] = []
    bench.batcher.lobby.quiet = lambda: quiet.append(bench.batcher.is_idle)
    running, waiting = bench.send([1]) + bench.send([2])
    bench.batcher.drain()
    (late,) = bench.send([3])
    bench.puppet.echo()
    bench.puppet.echo()

    assert bench.codes() == {running: 0, waiting: 0, late: UNAVAILABLE}
    assert quiet[-1]


def test_giving_up_answers_unavailable_only_where_nothing_ran() -> None:
    bench = Bench()
    running, waiting = bench.send([1]) + bench.send([2])
    bench.batcher.give_up("this replica stops")

    assert bench.codes() == {running: INTERNAL, waiting: UNAVAILABLE}
    assert bench.answers[running].executed == pb.EXECUTED_MAYBE
    assert bench.answers[waiting].executed == pb.EXECUTED_NO
