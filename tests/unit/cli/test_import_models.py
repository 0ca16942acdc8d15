"""What turnout models import reads, before anything is written."""

from pathlib import Path

import pytest

from services.cli.errors import CliError
from services.cli.import_models import Outcome, read, spec_of
from services.core.imported import Imported
from services.core.model_spec import ModelSpec
from services.core.spec import BadValueError


def put(root: Path, **files: str) -> Path:
    for name, content in files.items():
        file = root / name.replace("__", "/").replace("_pbtxt", ".pbtxt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def imported(found: list[Imported | Outcome]) -> dict[str, dict[str, object]]:
    return {each.model: each.fields for each in found if isinstance(each, Imported)}


def test_a_triton_repository_is_read_model_by_model(tmp_path: Path) -> None:
    put(
        tmp_path, digits__config_pbtxt='backend: "onnxruntime" max_batch_size: 8', digits__2__model="", digits__10__m=""
    )
    put(
        tmp_path, plain__1__model="", pipeline__config_pbtxt='platform: "ensemble"', notes__readme="", digits__old__x=""
    )
    found = read(tmp_path)

    assert imported(found) == {
        "digits": {
            "repository": tmp_path.as_uri(), "default_version": "10", "framework": "onnx",
            "batching": {"max_batch_size": 8},
        },
        "plain": {"repository": tmp_path.as_uri(), "default_version": "1"},
    }  # fmt: skip
    assert [each.model for each in found if isinstance(each, Outcome)] == ["pipeline"]
    assert "folder old is no version" in " ".join(found[0].notes)


def test_one_models_folder_will_do_and_pods_may_find_it_elsewhere(tmp_path: Path) -> None:
    put(tmp_path, digits__config_pbtxt="max_batch_size: 8", digits__1__model="")

    assert imported(read(tmp_path / "digits", "s3://bucket/models"))["digits"]["repository"] == "s3://bucket/models"
    assert imported(read(tmp_path / "digits" / "config.pbtxt"))["digits"]["repository"] == tmp_path.as_uri()


def test_a_model_config_of_tensorflow_serving_is_read(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(f'model_config_list {{ config {{ name: "half" base_path: "{tmp_path}/half_plus" }} }}')
    put(tmp_path, half_plus__123__saved_model="")

    assert imported(read(file)) == {
        "half": {
            "repository": str(tmp_path), "folder": "half_plus", "framework": "tensorflow", "default_version": "123",
        }
    }  # fmt: skip


def test_other_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(CliError, match=r"x\.txt: no text of a protobuf message"):
        read(tmp_path / "x.txt")
    with pytest.raises(CliError, match="is not there"):
        read(tmp_path / "nowhere")


def test_what_an_operator_has_set_stays_unless_it_is_to_be_replaced() -> None:
    before = ModelSpec.parse(b'{"batching": {"max_batch_size": 4}, "idempotent": false}')
    new = Imported("m", {"batching": {"max_batch_size": 8, "max_queue_delay_microseconds": 5}, "framework": "onnx"})
    filled, replaced = spec_of(new, before, replace=False), spec_of(new, before, replace=True)

    assert (filled.batching.max_batch_size, filled.batching.max_queue_delay_microseconds) == (4, 5)
    assert replaced.batching.max_batch_size == 8
    assert not replaced.idempotent
    assert filled.framework == "onnx"


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(BadValueError, match="preferred_batch_size 16"):
        spec_of(Imported("m", {"batching": {"max_batch_size": 8, "preferred_batch_size": [16]}}), None, replace=False)
