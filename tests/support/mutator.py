"""Good requests made bad, the same ones for the same seed: bytes bitten anywhere, JSON changed at any of its nodes."""

import json
import random
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

_ODD_BYTES = (b"\0", b"\xff", b"\x80", b"\x7f", b"{", b"}", b"[", b'"', b"\\", b",", b"0", b"-", b"\n", b"\xc3")
_ODD_NUMBERS = (0, 1, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**64 - 1)
_ODD_VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 1.0, 0.5, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, float("nan"),
    float("inf"), "", "x", "é", "\0", "FP32", "BYTES", "NaN", "1", [], [[]], [None], {}, {"b64": "AA=="}, {"b64": "?"},
    {"name": None}, [1, [2]], "x" * 5000, list(range(300)),
)  # fmt: skip
_DEEPEST = 200


class Mutator:
    def __init__(self, seed: str, goldens: Sequence[bytes]) -> None:
        self.random = random.Random(seed)
        self._goldens = goldens
        self._bites: Sequence[Callable[[bytearray, int, int], object]] = (
            self._flip, self._odd, self._cut, self._repeat, self._noise, self._end, self._number, self._splice,
        )  # fmt: skip

    def bitten(self, data: bytes) -> bytes:
        """One to four faults in bytes."""
        bitten = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            start = self.random.randint(0, len(bitten))
            self.random.choice(self._bites)(bitten, start, min(len(bitten), start + self.random.randint(1, 16)))
        return bytes(bitten)

    def changed(self, data: bytes) -> bytes:
        """JSON with one to three nodes changed, removed, doubled or buried."""
        tree = [json.loads(data)]
        for _ in range(self.random.randint(1, 3)):
            self._change(self.random.choice(list(_places(tree))))
        return json.dumps(tree[0]).encode()

    def spoilt(self, data: bytes) -> bytes:
        """JSON changed as JSON, or as any bytes."""
        return self.changed(data) if self.random.random() < 0.6 else self.bitten(data)

    def beheaded(self, data: bytes, head_bytes: int) -> tuple[bytes, str]:
        """A body of JSON and bytes behind it, and the length that is said of the JSON: either spoilt, or both."""
        head, tail = data[:head_bytes], data[head_bytes:]
        kind = self.random.randrange(4)
        if kind == 0:
            said = str(self.random.choice([-1, 0, 1, head_bytes - 1, head_bytes + 1, len(data), len(data) + 1, 2**63]))
            return data, self.random.choice([said, "", "x", "1e3", "+5", " 7", said])
        if kind == 1:
            return head + self.bitten(tail), str(head_bytes)
        head = self.spoilt(head)
        return head + (tail if kind == 2 else self.bitten(tail)), str(len(head))

    def _change(self, place: tuple[Any, Any]) -> None:
        inside, key = place
        match self.random.randrange(6):
            case 0 if not isinstance(inside, dict) or inside:
                del inside[key]
                if isinstance(inside, list) and not inside:
                    inside.append(None)
            case 1 if isinstance(inside, dict):
                inside[self.random.choice(["x", "data", "inputs", "instances", "parameters", ""])] = inside.pop(key)
            case 2 if isinstance(inside, list):
                inside.insert(key, deepcopy(inside[key]))
            case 3:
                value: Any = inside[key]
                for _ in range(self.random.choice([1, 2, 90, _DEEPEST])):
                    value = [value]
                inside[key] = value
            case _:
                inside[key] = deepcopy(self.random.choice(_ODD_VALUES))

    def _flip(self, data: bytearray, start: int, end: int) -> None:
        for index in range(start, min(end, start + 2)):
            data[index] ^= 1 << self.random.randrange(8)

    def _odd(self, data: bytearray, start: int, end: int) -> None:
        data[start : start + 1] = self.random.choice(_ODD_BYTES)

    def _cut(self, data: bytearray, start: int, end: int) -> None:
        del data[start:end]

    def _repeat(self, data: bytearray, start: int, end: int) -> None:
        data[start:start] = data[start:end] * self.random.choice([1, 2, 50])

    def _noise(self, data: bytearray, start: int, end: int) -> None:
        data[start:start] = self.random.randbytes(end - start)

    def _end(self, data: bytearray, start: int, end: int) -> None:
        del data[start:]

    def _number(self, data: bytearray, start: int, end: int) -> None:
        number = self.random.choice(_ODD_NUMBERS)
        packed = struct.pack("<Q", number) if self.random.random() < 0.5 else str(number).encode()
        data[start : start + self.random.choice([1, 4, 8])] = packed[: self.random.choice([1, 4, 8])]

    def _splice(self, data: bytearray, start: int, end: int) -> None:
        other = self.random.choice(self._goldens)
        data[start:] = other[self.random.randint(0, len(other)) :]


def _places(tree: Any) -> Any:
    """(container, key) of every node below the root's list."""
    stack = [tree]
    while stack:
        inside = stack.pop()
        pairs = inside.items() if isinstance(inside, dict) else enumerate(inside)
        for key, value in pairs:
            yield inside, key
            if isinstance(value, dict | list):
                stack.append(value)
