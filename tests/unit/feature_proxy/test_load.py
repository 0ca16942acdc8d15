import io
import json
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from services.core.feature_spec import FeatureViewSpec
from services.core.spec import BadValueError
from services.feature_proxy import codec
from services.feature_proxy.load import main
from services.feature_proxy.stores import open_store
from tests.support.feature_client import load_rows

COLUMNS = [{"name": "age"}, {"name": "visits", "datatype": "INT64"}]


def a_spec(store: str) -> FeatureViewSpec:
    return FeatureViewSpec.model_validate({"store": store, "entity": "id", "columns": COLUMNS})


async def test_rows_are_stored_under_their_key_as_of_the_event_time() -> None:
    spec = a_spec(f"memory://{uuid.uuid4().hex}")

    count = await load_rows(spec.store, "v", spec, {1: {"age": 2}, "ana": {"visits": 3}, b"\xff": {}}, event_time=5)

    blobs = await open_store(spec.store).get_many("v", [b"1", b"ana", b"\xff"])
    records = codec.read(codec.Layout.of(spec.columns), [blob for blob in blobs if blob is not None])
    assert count == len(records) == 3
    assert records["column0"].tolist() == [2, 0, 0]
    assert records["event_time"].tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("entity", "values", "reason"),
    [
        (17, {"agee": 1}, "id=17: agee: no such column"),
        ("ana", {"visits": 0.5}, "id='ana': visits: 0.5 is no INT64"),
        ("", {}, "id='': the entity has 0 bytes"),
        ("x" * 1025, {}, "the entity has 1025 bytes, not 1 to 1024"),
        (True, {}, "id=True: the entity is neither"),
    ],
)
async def test_what_does_not_fit_is_named(entity: Any, values: dict[str, Any], reason: str) -> None:
    spec = a_spec("memory://never")

    with pytest.raises(BadValueError, match=reason):
        await load_rows(spec.store, "v", spec, {entity: values})


def test_the_command_reads_lines_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spec.json"
    file.write_bytes(a_spec(f"sqlite://{tmp_path}/f.db").dump())
    lines = [{"entity": i, "values": {"age": i}, "event_time": 1} for i in range(3)]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, lines)) + "\n\n"))

    code = main(["--view", "v", "--spec", str(file)])

    with sqlite3.connect(tmp_path / "f.db") as connection:
        stored = connection.execute("SELECT entity FROM features WHERE view = 'v' ORDER BY entity").fetchall()
    connection.close()
    assert (code, capsys.readouterr().out) == (0, "3 rows written to feature view v\n")
    assert stored == [(b"0",), (b"1",), (b"2",)]


def test_a_line_without_an_event_time_is_as_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = a_spec(f"sqlite://{tmp_path}/f.db")
    file = tmp_path / "spec.json"
    file.write_bytes(spec.dump())
    monkeypatch.setattr("sys.stdin", io.StringIO('{"entity": 1, "values": {}}'))

    main(["--view", "v", "--spec", str(file)])

    with sqlite3.connect(tmp_path / "f.db") as connection:
        (blob,) = connection.execute("SELECT value FROM features").fetchone()
    connection.close()
    (at,) = codec.read(codec.Layout.of(spec.columns), [blob])["event_time"]
    assert abs(time.time() - at) < 60


@pytest.mark.parametrize("line", ["{", "[]", '{"entity": 1}', '{"entity": 1, "values": 5}'])
def test_the_command_names_the_line_that_is_wrong(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spec.json"
    file.write_bytes(a_spec("memory://never").dump())
    monkeypatch.setattr("sys.stdin", io.StringIO(f'{{"entity": 1, "values": {{}}}}\n{line}\n'))

    assert main(["--view", "v", "--spec", str(file)]) == 1
    assert "line 2: expected" in capsys.readouterr().err
