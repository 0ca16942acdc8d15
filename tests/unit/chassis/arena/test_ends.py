"""Lender and borrower: the offer, the proof, and blocks on their way."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from services.chassis.arena import BlockError, decode_block
from services.chassis.arena.arenas import Arenas
from tests.support.lending import MIB, Pair


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def values(arenas: Arenas) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in arenas.collect()
        for sample in family.samples
    }


async def test_the_first_large_tensor_goes_as_bytes_and_brings_the_arena(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    before = files(tmp_path)
    first, second = pair.lend(b"first"), pair.lend(b"second")
    assert second is not None

    assert (before, first) == ([], None)
    assert bytes(pair.borrower.read(7, *decode_block(second))) == b"second"
    assert values(pair.arenas) == {
        "turnout_shared_memory_tensors_total": 1,
        "turnout_shared_memory_fallbacks_total full": 0,
        "turnout_shared_memory_fallbacks_total unproven": 1,
        "turnout_shared_memory_blocks": 1,
        "turnout_shared_memory_bytes": 4096,
    }


async def test_a_block_is_lent_again_only_after_its_request_gave_it_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lend(b"first")
    blocks = [pair.lend(bytes([number]) * 100) for number in range(3)]
    offsets = [
        decode_block(block)[0]
        for number, block in enumerate(blocks)
        if block and pair.borrower.read(number, *decode_block(block))
    ]
    assert len(set(offsets)) == 3
    pair.borrower.give_back(1)
    pair.borrower.give_back(1)
    again = pair.lend(b"x" * 100)
    assert again is not None

    assert decode_block(again)[0] == offsets[1]
    assert pair.lender.blocks == 3
    assert set(pair.borrower.lent) == {0, 2}


async def test_a_peer_that_does_not_see_the_arena_gets_bytes_for_good(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    pair = Pair(ours, borrows=theirs)

    assert [pair.lend(b"data") for _ in range(3)] == [None] * 3
    assert pair.answers == [b""]
    assert files(ours) == []


async def test_a_peer_that_reads_another_nonce_gets_bytes_for_good(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.mute = True
    pair.lend(b"data")
    pair.lender.proven(b"not that nonce..")

    assert pair.lend(b"data") is None
    assert files(tmp_path) == []


async def test_a_peer_that_never_answers_gets_bytes_and_costs_a_page(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.mute = True

    assert [pair.lend(bytes(MIB)) for _ in range(3)] == [None] * 3
    assert pair.lender.reserved_bytes == 4096


async def test_what_finds_no_room_goes_as_bytes_and_is_counted(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lend(b"first")
    lent = [pair.lend(bytes(MIB)) for _ in range(40)]

    assert 10 < sum(block is not None for block in lent) < 17
    assert values(pair.arenas)["turnout_shared_memory_fallbacks_total full"] == sum(block is None for block in lent)


async def test_a_host_without_memory_is_asked_again_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    pair.lend(b"first")
    asked = []

    def full(*_: object) -> None:
        asked.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)

    assert [pair.lend(bytes(MIB)) for _ in range(5)] == [None] * 5
    assert len(asked) == 1


async def test_without_shared_memory_tensors_go_as_bytes(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "nowhere")

    assert [pair.lend(b"data") for _ in range(2)] == [None] * 2
    assert Arenas(0).lender(pair) is None


async def test_an_arena_ends_with_its_link_and_is_never_used_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lend(b"first")
    block = pair.lend(b"outstanding")
    assert block is not None
    view = pair.borrower.read(1, *decode_block(block))
    pair.lender.close()
    pair.borrower.close()

    assert bytes(view) == b"outstanding"
    assert files(tmp_path) == []
    assert pair.lend(b"data") is None
    assert values(pair.arenas)["turnout_shared_memory_bytes"] == 0


async def test_a_block_before_any_offer_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)

    with pytest.raises(BlockError, match="no arena was opened"):
        pair.borrower.read(1, 4096, 5, 1)
    with pytest.raises(BlockError, match="3 bytes that do not name a block"):
        decode_block(b"abc")
    assert pair.borrower.lent == {}


async def test_a_killed_owners_arena_is_unlinked_by_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.chassis.arena.borrower._ORPHANED_S", 0.01)
    pair = Pair(tmp_path)
    pair.lend(b"first")
    assert pair.lender._arena is not None
    os.close(pair.lender._arena._fd)  # as the kernel does, mappings included
    for segment in pair.lender._arena._segments:
        segment.close()
    pair.lender._arena = None
    pair.borrower.close()
    async with asyncio.timeout(5):
        while files(tmp_path):
            await asyncio.sleep(0.005)
