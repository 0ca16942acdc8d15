"""Models that are code."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.python import Model

TRUSTED = Options(trusted=True)
LENGTHS = """
    class Model:
        inputs = {"text": ("BYTES", [-1])}
        outputs = {"length": ("INT64", [-1]), "upper": ("BYTES", [-1])}

        def load(self, folder):
            self.suffix = (folder / "suffix").read_bytes()

        def predict(self, inputs):
            text = inputs["text"]
            return {"length": [len(each) for each in text], "upper": [each.upper() + self.suffix for each in text]}

        def unload(self):
            self.suffix = b"gone"
"""


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """A worker loads one model; here the next one must not see the last one's modules."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and "pytest-of" in str(sys.modules[name].__file__):
            del sys.modules[name]


def loaded(folder: Path, source: str, options: Options = TRUSTED) -> tuple[Model, Signature]:
    (folder / "model.py").write_text(dedent(source))
    model = Model()
    return model, model.load(folder / "model.py", options)


def declared(body: str, inputs: str = '{"x": ("FP32", [-1, 2])}', outputs: str = '{"y": ("FP32", [-1])}') -> str:
    return f"class Model:\n    inputs = {inputs}\n    outputs = {outputs}\n    {body}\n"


def test_a_class_takes_and_gives_what_it_declares(tmp_path: Path) -> None:
    (tmp_path / "suffix").write_bytes(b"\0")
    model, signature = loaded(tmp_path, LENGTHS)
    answer = model.run({"text": np.array([b"ab", b"c\0"], dtype=object)})

    assert signature.inputs == (TensorSpec("text", "BYTES", (-1,)),)
    assert signature.outputs == (TensorSpec("length", "INT64", (-1,)), TensorSpec("upper", "BYTES", (-1,)))
    assert signature.batches
    assert signature.platform == "python"
    assert answer["length"].tolist() == [2, 2]
    assert answer["length"].dtype == np.int64
    assert answer["upper"].tolist() == [b"AB\0", b"C\0\0"]


def test_unload_is_told_to_the_class(tmp_path: Path) -> None:
    model, _ = loaded(
        tmp_path,
        declared(
            "def predict(self, inputs): return {'y': inputs['x'].sum(axis=1)}\n    def unload(self): print('let go')"
        ),
    )
    answer = model.run({"x": np.ones((3, 2), np.float32)})
    model.unload()
    model.unload()

    assert answer["y"].tolist() == [2, 2, 2]


def test_code_needs_the_operators_word(tmp_path: Path) -> None:
    with pytest.raises(BadArtifactError, match=r"^model.py is code and would run when loaded: set trusted"):
        loaded(tmp_path, "raise SystemExit", Options())


def test_other_files_of_the_version_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "doubling_helper.py").write_text("def double(x): return 2 * x")
    source = "from doubling_helper import double\n" + declared(
        "def predict(self, inputs): return {'y': double(inputs['x'][:, 0])}"
    )
    model, _ = loaded(tmp_path, source)

    assert model.run({"x": np.ones((1, 2), np.float32)})["y"].tolist() == [2]


def test_rows_are_not_counted_where_the_class_says_so(tmp_path: Path) -> None:
    body = "batches = False\n    def predict(self, inputs): return {'y': [1]}"

    assert not loaded(tmp_path, declared(body))[1].batches
    assert not loaded(tmp_path, declared(body, outputs='{"y": ("FP32", [])}').replace("False", "True"))[1].batches


@pytest.mark.parametrize(
    ("notes", "missing"),
    [
        ('dependencies = ["numpy>=1000"]', r"numpy>=1000 \(is 2[.]"),
        ('dependencies = ["no-such-package-here"]', "no-such-package-here$"),
        ('requires-python = "<3"', r"Python <3 \(is 3[.]"),
    ],
)
def test_requirements_are_checked_before_it_runs(tmp_path: Path, notes: str, missing: str) -> None:
    source = f"# /// script\n# {notes}\n#\n# ///\nraise SystemExit"
    with pytest.raises(BadArtifactError, match=rf"^model.py needs what this pod has not installed: {missing}"):
        loaded(tmp_path, source)


def test_requirements_that_are_there_are_no_hindrance(tmp_path: Path) -> None:
    notes = '# /// script\n# dependencies = ["numpy>=2", "nothing; python_version < \'3\'"]\n# ///\n'

    assert loaded(tmp_path, notes + declared("def predict(self, inputs): return {}"))[1].batches


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class Model:\n  def", "model.py: expected Python code; line 2: invalid syntax"),
        ("import no_such_module", "model.py imports what this pod has not installed: No module named 'no_such_module'"),
        ("1 / 0", "model.py: it raised ZeroDivisionError while it ran: division by zero"),
        ("model = 1", "model.py: expected a class Model, found none"),
        ("class Model: ...", 'model.py: expected Model.inputs like {"x": ("FP32", [-1, 4])}, found None'),
        (declared("x = 1"), "model.py: expected class Model to have predict(inputs), found none"),
        (declared("", inputs='{"x": ("float32", [1])}'), "model.py: inputs['x']: expected one of BOOL, UINT8, "),
        (declared("", inputs='{"x": "FP32"}'), "model.py: inputs['x']: expected a datatype and a shape like "),
        (declared("", outputs='{"y": ("FP32", [-2])}'), "model.py: outputs['y']: expected sizes of -1 (any) or more"),
        ("# /// script\n# x = [\n# ///\n", "model.py: its requirements cannot be read: "),
        ('# /// script\n# dependencies = ["a b"]\n# ///\n', "model.py: its requirements cannot be read: "),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, source: str, reason: str) -> None:
    with pytest.raises(BadArtifactError) as caught:
        loaded(tmp_path, source)

    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("[1]", "predict gave a list; expected a dict with y"),
        ("{'z': 1}", "predict gave no output 'y'; it gave z"),
        ("{'y': ['text']}", "predict gave output 'y' as <U4; declared is float32"),
    ],
)
def test_answers_other_than_declared_are_said(tmp_path: Path, given: str, reason: str) -> None:
    model, _ = loaded(tmp_path, declared(f"def predict(self, inputs): return {given}"))
    with pytest.raises((TypeError, ValueError), match=reason):
        model.run({"x": np.ones((1, 2), np.float32)})


def test_text_is_not_cut_at_its_end(tmp_path: Path) -> None:
    model, _ = loaded(
        tmp_path, declared("def predict(self, inputs): return {'y': [b'a\\0', 'é']}", outputs='{"y": ("BYTES", [-1])}')
    )

    assert model.run({"x": np.ones((2, 2), np.float32)})["y"].tolist() == [b"a\0", "é"]


@pytest.mark.parametrize(
    "examples",
    [
        "examples = [{'x': [1, 2], 'name': ['a', b'b']}]",
        "def examples(self): yield {'x': [1, 2], 'name': ['a', b'b']}",
    ],
)
def test_what_a_class_shows_comes_as_callers_send_it(tmp_path: Path, examples: str) -> None:
    inputs = '{"x": ("INT16", [-1]), "name": ("BYTES", [-1])}'
    model, _ = loaded(tmp_path, declared(f"def predict(self, inputs): return {{}}\n    {examples}", inputs))
    (example,) = model.examples()

    assert (example["x"].dtype, example["x"].tolist()) == (np.int16, [1, 2])
    assert example["name"].tolist() == [b"a", b"b"]


def test_a_class_need_not_show_anything(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, declared("def predict(self, inputs): return {}"))

    assert list(model.examples()) == []
