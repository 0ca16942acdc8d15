import errno
import mmap
import os
import stat
from pathlib import Path

import pytest

from services.chassis.arena.layout import LINE, PAGE, BlockError, decode_block
from services.chassis.arena.mapped import MappedArena
from services.chassis.arena.owner import Arena
from services.chassis.arena.reaper import reap

MIB = 1 << 20
LIMIT = 32 * MIB


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena(tmp_path, LIMIT)


def put(arena: Arena, data: bytes) -> tuple[int, int, int]:
    block = arena.put((data,), len(data))
    assert block is not None
    return decode_block(block)


def test_what_was_put_is_read_where_it_lies(arena: Arena) -> None:
    reader = MappedArena(arena.path.parent, arena.path.name)
    block = arena.put((b"one", memoryview(b"and two")), 10)
    assert block is not None
    view = reader.view(*decode_block(block))

    assert reader.nonce == arena.nonce
    assert bytes(view) == b"oneand two"
    assert view.readonly


def test_an_arena_is_for_its_user_and_group_only(arena: Arena) -> None:
    assert stat.S_IMODE(arena.path.stat().st_mode) == 0o640
    assert arena.path.stat().st_size == arena.reserved_bytes == PAGE


def test_it_grows_as_needed_and_the_reader_follows(arena: Arena) -> None:
    reader = MappedArena(arena.path.parent, arena.path.name)
    blocks = [put(arena, bytes([number]) * 3 * MIB) for number in range(8)]
    large = put(arena, b"x" * 12 * MIB) if arena.reserved_bytes <= 18 * MIB else None

    assert [bytes(reader.view(*block)[::MIB]) for block in blocks] == [bytes([number]) * 3 for number in range(8)]
    assert large is None or len(reader.view(*large)) == 12 * MIB
    assert arena.reserved_bytes <= LIMIT


def test_it_never_passes_its_limit(arena: Arena) -> None:
    data = bytes(MIB)
    blocks = []
    while (block := arena.put((data,), MIB)) is not None:
        blocks.append(decode_block(block))

    assert arena.reserved_bytes <= LIMIT
    assert len(blocks) > 24
    arena.release(blocks[3][2])
    assert put(arena, data)[0] == blocks[3][0]


def test_a_block_larger_than_the_limit_is_not_tried(arena: Arena) -> None:
    assert arena.put((), LIMIT) is None
    assert arena.reserved_bytes == PAGE


def test_what_was_given_back_is_refused_until_it_is_lent_again(arena: Arena) -> None:
    reader = MappedArena(arena.path.parent, arena.path.name)
    offset, length, generation = put(arena, b"first")
    arena.release(generation)
    arena.release(generation)
    with pytest.raises(BlockError, match=f"has generation 0 and 0 bytes, not generation {generation}"):
        reader.view(offset, length, generation)
    again = put(arena, b"other")

    assert again[0] == offset
    with pytest.raises(BlockError, match=f"has generation {again[2]} and 5 bytes, not generation {generation}"):
        reader.view(offset, length, generation)


@pytest.mark.parametrize(
    ("move", "lengthen", "message"),
    [
        (1, 0, "no block of 5 bytes lies at"),
        (-LINE, 0, "no block of 5 bytes|has generation"),
        (1 << 40, 0, "no block of 5 bytes lies at"),
        (0, 1, "not generation"),
        (0, 1 << 62, "no block of"),
        (-1 << 62, 0, "no block of"),
    ],
)
def test_a_block_that_does_not_fit_is_refused(arena: Arena, move: int, lengthen: int, message: str) -> None:
    reader = MappedArena(arena.path.parent, arena.path.name)
    offset, length, generation = put(arena, b"right")

    with pytest.raises(BlockError, match=message):
        reader.view(max(0, offset + move), length + lengthen, generation)


def test_a_host_without_memory_is_an_error_that_leaves_the_rest_in_use(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = put(arena, b"before")
    reader = MappedArena(arena.path.parent, arena.path.name)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        arena.put((bytes(MIB),), MIB)

    assert bytes(reader.view(*block)) == b"before"
    assert arena.put((b"small",), 5) is not None


def test_a_block_that_cannot_be_mapped_is_refused_and_the_rest_stays_readable(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = put(arena, b"before")
    reader = MappedArena(arena.path.parent, arena.path.name)
    reader.view(*block)
    far = put(arena, bytes(10 * MIB))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", full)
        with pytest.raises(BlockError, match="cannot be mapped"):
            reader.view(*far)

    assert bytes(reader.view(*block)) == b"before"
    assert len(reader.view(*far)) == 10 * MIB


def test_views_outlive_both_ends(arena: Arena) -> None:
    reader = MappedArena(arena.path.parent, arena.path.name)
    view = reader.view(*put(arena, b"kept"))
    reader.close()
    arena.close()
    arena.close()

    assert bytes(view) == b"kept"
    assert not arena.path.exists()


@pytest.mark.parametrize("name", ["../turnout-1-ab", "turnout-", "passwd", "turnout-1/../../etc", ""])
def test_only_arenas_are_opened_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an arena"):
        MappedArena(tmp_path, name)


@pytest.mark.parametrize("content", [b"", b"turnout1", bytes(PAGE)])
def test_a_file_that_is_no_arena_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "turnout-1-ab").write_bytes(content)

    with pytest.raises(ValueError, match="turnout-1-ab"):
        MappedArena(tmp_path, "turnout-1-ab")


def test_links_and_other_kinds_of_files_are_not_followed(tmp_path: Path, arena: Arena) -> None:
    (tmp_path / "turnout-link").symlink_to(arena.path)
    os.mkfifo(tmp_path / "turnout-fifo")

    with pytest.raises(OSError, match="turnout-link"):
        MappedArena(tmp_path, "turnout-link")
    with pytest.raises(ValueError, match="is not an arena"):
        MappedArena(tmp_path, "turnout-fifo")


def test_only_arenas_without_an_owner_are_unlinked(tmp_path: Path, arena: Arena) -> None:
    (tmp_path / "turnout-1-dead").write_bytes(b"left by a process that was killed")
    (tmp_path / "somebody-elses").write_bytes(b"")

    assert reap(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([arena.path.name, "somebody-elses"])
