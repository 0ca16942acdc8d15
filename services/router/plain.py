"""Messages as JSON under their own field names, everything said: numbers stay numbers, also those of 64 bits."""

from typing import Any

from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """Every field that has a value; of those that may be absent, the ones that are there."""
    said: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            said[field.name] = {str(key): _value(of, value[key]) for key in sorted(value)}
        elif field.is_repeated:
            said[field.name] = [_value(field, each) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            said[field.name] = _value(field, value)
    return said


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value
