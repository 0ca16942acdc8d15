"""What a model repository may hold."""

import time
from pathlib import Path

import pytest

from services.runtime.local_repository import LocalFolder
from services.runtime.source import (
    Artifact,
    BadRepositoryError,
    Stat,
    checked,
    digest,
    is_hidden,
    is_settled,
    parse_sums,
    why_unsafe,
)

HERE = LocalFolder(Path("/srv/m/1"), None)


class Afar:
    is_remote = True


def put(file: Path, content: bytes = b"x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def changed(s_ago: float, now_s: float) -> tuple[Stat, ...]:
    return (Stat("f", 1, "t", now_s - s_ago),)


def test_a_version_is_settled_once_nobody_touches_it() -> None:
    now_s = time.time()
    fresh, old = Artifact(HERE, changed(1, now_s)), Artifact(HERE, changed(5, now_s))

    assert not is_settled(fresh, 0, now_s, settle_s=60)
    assert is_settled(fresh, 61, now_s, settle_s=60)
    assert is_settled(old, 0, now_s, settle_s=4)


def test_another_hosts_clock_is_believed_with_a_margin_only() -> None:
    now_s = time.time()
    fresh, old = (Artifact(Afar(), changed(s, now_s)) for s in (30, 90))  # type: ignore[arg-type]
    unknown = Artifact(Afar(), (Stat("f", 1, "t"),))  # type: ignore[arg-type]

    assert not is_settled(fresh, 0, now_s, settle_s=1)
    assert not is_settled(unknown, 0, now_s, settle_s=1)
    assert is_settled(unknown, 1, now_s, settle_s=1)
    assert is_settled(old, 0, now_s, settle_s=1)


def test_a_version_listed_with_its_checksums_need_not_settle() -> None:
    artifact = Artifact(Afar(), (Stat("f", -1, "ab"),), sums=(("f", "ab"),))  # type: ignore[arg-type]

    assert is_settled(artifact, 0, time.time(), settle_s=60)


def test_the_digest_is_of_names_and_bytes(tmp_path: Path) -> None:
    for folder, name, content in (("a", "f", b"1"), ("b", "f", b"1"), ("c", "g", b"1"), ("d", "f", b"2")):
        put(tmp_path / folder / name, content)
    one, same, renamed, other = (
        digest(tmp_path / folder, {name: 1}) for folder, name in (("a", "f"), ("b", "f"), ("c", "g"), ("d", "f"))
    )

    assert one == same
    assert len({one, renamed, other}) == 3


def test_the_digest_does_not_run_files_together(tmp_path: Path) -> None:
    put(tmp_path / "a" / "f", b"12")
    put(tmp_path / "a" / "g", b"3")
    put(tmp_path / "b" / "f", b"1")
    put(tmp_path / "b" / "g", b"23")

    assert digest(tmp_path / "a", {"f": 2, "g": 1}) != digest(tmp_path / "b", {"f": 1, "g": 2})


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/", "", "a\nb", "a\0b", "x" * 256, "ü" * 128,
             "/".join("d" * 100 for _ in range(11)), "/".join("d" * 17)],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert why_unsafe(name)
    with pytest.raises(BadRepositoryError):
        checked([Stat(name, 1, "t")])


@pytest.mark.parametrize("name", ["model.onnx", "a/b/c", "..a", "a..b", "Ä ö.txt", "x" * 255, "a\\b"])
def test_other_names_are_not(name: str) -> None:
    assert why_unsafe(name) == ""


def test_a_version_has_a_bounded_number_of_files() -> None:
    with pytest.raises(BadRepositoryError, match="over 10000 files"):
        checked([Stat(f"f{i}", 1, "t") for i in range(10_001)])


def test_hidden_and_unfinished_files_are_no_part_of_a_version() -> None:
    hidden = [".git", "a/.x/b", "model.onnx.part", "b.tmp/c", "x~"]

    assert [name for name in [*hidden, "a.b/c", "part/x"] if not is_hidden(name)] == ["a.b/c", "part/x"]


def test_checksums_are_read_as_sha256sum_writes_them() -> None:
    one, two = "a" * 64, "B" * 64

    assert parse_sums(f"{one} *model.onnx\n\n# notes\n{two}  ./data/a b.bin\n") == {
        "model.onnx": one,
        "data/a b.bin": two.lower(),
    }


@pytest.mark.parametrize("line", ["abc  model.onnx", f"{'a' * 64}  ../../etc/passwd", f"{'g' * 64}  x", "a" * 64])
def test_other_checksums_are_refused_by_line(line: str) -> None:
    with pytest.raises(BadRepositoryError, match=r"SHA256SUMS, line 2"):
        parse_sums(f"{'a' * 64}  x\n{line}\n")
