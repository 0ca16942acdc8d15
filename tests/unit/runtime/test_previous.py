"""Versions that were served and no longer are."""

from pathlib import Path

from services.runtime.previous import Previous


async def test_dropped_versions_are_remembered_over_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "previous.json"
    previous = Previous(file)
    previous.note("m", {"1"}, set())
    previous.note("m", {"2"}, {"1"})
    await previous.save()
    again = Previous(file)
    await again.load()

    assert previous.is_unsaved
    assert again.versions == {"m": ["1"]}


def test_a_version_that_was_never_ready_is_not_worth_keeping(tmp_path: Path) -> None:
    previous = Previous(tmp_path / "previous.json")
    previous.note("m", {"1", "2"}, set())
    previous.note("m", {"3"}, {"2"})

    assert previous.versions == {"m": ["2"]}


async def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    for number, text in enumerate(("{", "[]", '{"m": 7}', '{"m": ["1; drop"], "../x": ["1"]}')):
        file = tmp_path / str(number)
        file.write_text(text)
        previous = Previous(file)
        await previous.load()

        assert previous.versions in ({}, {"m": []})
