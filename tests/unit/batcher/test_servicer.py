"""Frames of callers that make no sense."""

from pathlib import Path
from typing import cast

import structlog

from services.batcher.request import Caller
from services.batcher.servicer import CallerLinks
from services.batcher.statistics import Statistics
from services.chassis.link import Link
from services.core.errors import INTERNAL
from tests.support.batching import MS, FakeLink, Time, ints
from tests.support.lending import Pair
from turnout.v1 import link_pb2 as pb


def test_blocks_that_cannot_be_read_fill_no_log_and_each_caller_is_told(tmp_path: Path) -> None:
    time, link, pair = Time(), FakeLink(), Pair(tmp_path)
    pair.prove()
    links = CallerLinks({}, Statistics({}, time.clock), time.clock)
    links._callers[cast("Link", link)] = Caller(cast("Link", link), pair.borrower)
    with structlog.testing.capture_logs() as logs:
        for number in range(1, 8):
            request = pair.move(ints(number, [number]))
            request.inputs[0].block.generation -= 1
            links.received(cast("Link", link), pb.Frame(requests=[request]))
            time.advance(200 * MS)

    assert [reply.code for reply in link.take().replies] == [INTERNAL] * 7
    assert [(line["event"], line["requests"]) for line in logs] == [("block_refused", 1), ("block_refused", 5)]
