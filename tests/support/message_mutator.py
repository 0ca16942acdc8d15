"""Protobuf messages changed field by field, so that what comes of them can be read and is wrong further in."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.support.mutator import Mutator

_TEXTS = ("", "x", "\0", "é", "FP32", "BYTES", "INT4", "nobody", "x" * 3000, "1", "-1", "best", "in_fp32", "../..")
_NUMBERS = (0, 1, 2, 3, -1, 7, 255, 256, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1, -(2**63), 2**64 - 1)
_FLOATS = (0.0, -0.0, 1e308, float("nan"), float("inf"))
Place = tuple[Message, FieldDescriptor]


class MessageMutator:
    def __init__(self, mutator: Mutator, kind: type[Message]) -> None:
        self._mutator = mutator
        self._random = mutator.random
        self._kind = kind

    def spoilt(self, data: bytes) -> bytes:
        """One to three fields changed; or any bytes of it."""
        if self._random.random() < 0.3:
            return self._mutator.bitten(data)
        message = self._kind.FromString(data)
        for _ in range(self._random.randint(1, 3)):
            places = list(_places(message))
            if places:
                self._change(*self._random.choice(places))
        return message.SerializeToString()

    def _change(self, message: Message, field: FieldDescriptor) -> None:
        if self._random.random() < 0.1:
            message.ClearField(field.name)
        elif _is_map(field):
            entries = getattr(message, field.name)
            del entries[self._random.choice(list(entries))]
        elif field.is_repeated:
            self._change_list(getattr(message, field.name), field)
        elif field.type != FieldDescriptor.TYPE_MESSAGE:
            self._fit(field, lambda value: setattr(message, field.name, value), getattr(message, field.name))

    def _change_list(self, values: Any, field: FieldDescriptor) -> None:
        index = self._random.randrange(len(values))
        match self._random.randrange(4):
            case 0:
                del values[index]
            case 1:
                values.extend([values[index]] * self._random.choice([1, 2, 40]))
            case _ if field.type != FieldDescriptor.TYPE_MESSAGE:
                self._fit(field, lambda value: values.__setitem__(index, value), values[index])
            case _:
                values.extend([values[index]])
                del values[index]

    def _fit(self, field: FieldDescriptor, put: Callable[[Any], object], now: Any) -> None:
        """Another value, if the field takes it."""
        if isinstance(now, bytes):
            value: Any = self._mutator.bitten(now)
        elif isinstance(now, str):
            value = self._random.choice(_TEXTS)
        elif isinstance(now, float):
            value = self._random.choice(_FLOATS)
        else:
            value = not now if isinstance(now, bool) else self._random.choice(_NUMBERS)
        try:
            put(value)
        except (ValueError, OverflowError):  # larger than the field
            put(type(now)(1))


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _places(message: Message) -> Iterator[Place]:
    """Every field that is set, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        inside = value.values() if _is_map(field) else value if field.is_repeated else [value]
        for each in inside:
            if isinstance(each, Message):
                yield from _places(each)
