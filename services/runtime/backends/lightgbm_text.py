"""LightGBM's text format: whether a file of it is whole, and how its JSON is written in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MISSING = {"None": 0, "Zero": 1, "NaN": 2}
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT = 1, 2, 2  # bits of decision_type
_WORD_BITS = 32
_END = b"end of trees"


def fault(content: bytes) -> str:
    """What is wrong with a model's text: each tree has as many bytes as `tree_sizes` says; empty when nothing is."""
    first = content.find(b"\nTree=") + 1
    head = content[:first] if first else content
    if not content.startswith(b"tree"):
        return f"found text that begins with {content[:16]!r}"
    sizes = [line for line in head.splitlines() if line.startswith(b"tree_sizes=")]
    if not sizes:
        return "" if first else "found a head without trees"
    try:
        expected = sum(map(int, sizes[0].partition(b"=")[2].split()))
    except ValueError:
        return f"found {sizes[0][:40]!r} where sizes of trees should be"
    if b"\r\n" in head:
        return "found lines that end in CR LF: its trees are counted in bytes, keep it as a binary file"
    if content[first + expected : first + expected + len(_END)] == _END:
        return ""
    return f"its trees should have {expected} bytes and then end, found {len(content) - first} bytes of another shape"


def from_json(model: Mapping[str, Any]) -> str:
    """The text of what Booster.dump_model gives: the same trees to the last bit. Raises KeyError or ValueError."""
    names = model["feature_names"]
    lines = [
        "tree",
        f"version={model['version']}",
        *(
            f"{name}={model[name]}"
            for name in ("num_class", "num_tree_per_iteration", "label_index", "max_feature_idx")
        ),
        *([f"objective={model['objective']}"] if "objective" in model else []),
        *(["average_output"] if model.get("average_output") else []),
        f"feature_names={' '.join(names)}",
        f"feature_infos={' '.join('none' for _ in names)}",
        "",
    ]
    for tree in model["tree_info"]:
        lines += [f"Tree={tree['tree_index']}", *_tree(tree), "", ""]
    return "\n".join([*lines, "end of trees", "", "pandas_categorical:null", ""])


def _tree(tree: Mapping[str, Any]) -> Iterator[str]:
    root = tree["tree_structure"]
    leaves = sorted(_nodes(root, "leaf_value"), key=lambda leaf: leaf.get("leaf_index", 0))
    splits = sorted(_nodes(root, "split_index"), key=lambda split: split["split_index"])
    if any("leaf_coeff" in leaf for leaf in leaves):
        raise ValueError("JSON with linear models in its leaves: save it as text with Booster.save_model('model.txt')")
    sets = [_bits(split["threshold"]) for split in splits if split["decision_type"] == "=="]
    yield f"num_leaves={tree['num_leaves']}"
    yield f"num_cat={len(sets)}"
    if splits:
        yield from _splits(splits)
    yield _line("leaf_value", [leaf["leaf_value"] for leaf in leaves])
    yield _line("leaf_weight", [leaf.get("leaf_weight", 0) for leaf in leaves])
    yield _line("leaf_count", [leaf.get("leaf_count", 0) for leaf in leaves])
    if sets:
        ends = [0]
        for words in sets:
            ends.append(ends[-1] + len(words))
        yield _line("cat_boundaries", ends)
        yield _line("cat_threshold", [word for words in sets for word in words])
    yield "is_linear=0"
    yield f"shrinkage={tree['shrinkage']!r}"


def _splits(splits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    thresholds: list[Any] = []
    sets = 0
    for split in splits:
        is_set = split["decision_type"] == "=="
        thresholds.append(sets if is_set else split["threshold"])  # a set's threshold is its number
        sets += is_set
    yield _line("split_feature", [split["split_feature"] for split in splits])
    yield _line("split_gain", [split["split_gain"] for split in splits])
    yield _line("threshold", thresholds)
    yield _line("decision_type", [_decision(split) for split in splits])
    yield _line("left_child", [_child(split["left_child"]) for split in splits])
    yield _line("right_child", [_child(split["right_child"]) for split in splits])
    for name in ("internal_value", "internal_weight", "internal_count"):
        yield _line(name, [split[name] for split in splits])


def _nodes(node: Mapping[str, Any], having: str) -> Iterator[Mapping[str, Any]]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if having in node:
            yield node
        if "split_index" in node:
            waiting += (node["left_child"], node["right_child"])


def _child(node: Mapping[str, Any]) -> int:
    index: int = node["split_index"] if "split_index" in node else ~node["leaf_index"]
    return index


def _decision(split: Mapping[str, Any]) -> int:
    bits = _MISSING[split["missing_type"]] << _MISSING_SHIFT
    if split["decision_type"] == "==":
        return bits | _CATEGORICAL
    return bits | (_DEFAULT_LEFT if split["default_left"] else 0)


def _bits(categories: str) -> list[int]:
    """The set of categories `1||5||7` as words of 32 bits."""
    values = [int(each) for each in categories.split("||")]
    words = [0] * (max(values) // _WORD_BITS + 1)
    for value in values:
        words[value // _WORD_BITS] |= 1 << value % _WORD_BITS
    return words


def _line(name: str, values: Sequence[float]) -> str:
    return f"{name}={' '.join(map(repr, values))}"
