"""What a worker prints."""

from services.runtime.output import Lines


def test_lines_come_whole_however_they_were_cut() -> None:
    lines = Lines()
    found = [line for chunk in (b"a", b"bc\nde", b"f\r\n\n  \ng") for line in lines.feed(chunk, 0)]

    assert found == ["abc", "def"]
    assert list(lines.end(0)) == ["g"]
    assert lines.last == "g"


def test_a_line_without_end_is_cut_once_and_costs_no_memory() -> None:
    lines = Lines()
    found = [line for _ in range(100) for line in lines.feed(b"x" * 65_536, 0)]
    found += lines.feed(b"tail\nnext\n", 0)

    assert found == ["x" * 4096 + " …", "next"]


def test_lines_over_a_hundred_a_second_are_counted_not_kept() -> None:
    lines = Lines()
    first = list(lines.feed(b"".join(b"%d\n" % number for number in range(1000)), 0.0))
    later = list(lines.feed(b"more\n", 1.0))

    assert first == [str(number) for number in range(100)]
    assert later == ["(900 lines left out: over 100 a second)", "more"]


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    assert list(Lines().feed(b"\xff\n", 0)) == ["�"]
