"""Messages as JSON under their own field names, everything said: numbers stay numbers, also those of 64 bits."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from services.chassis.openapi import Named


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


def schema_of(descriptor: Any) -> Named:
    """The JSON Schema of what `plain` makes of a message."""
    fields = {field.name: _schema_of_field(field) for field in descriptor.fields}
    needed = [field.name for field in descriptor.fields if not field.has_presence]
    return Named(
        descriptor.full_name.removeprefix(f"{descriptor.file.package}."),
        {"type": "object", "required": needed, "properties": fields},
    )


def _schema_of_field(field: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return {"type": "object", "additionalProperties": _schema_of_value(value)}
    one = _schema_of_value(field)
    return {"type": "array", "items": one} if field.is_repeated else one


def _schema_of_value(field: Any) -> Any:
    if field.message_type is not None:
        return schema_of(field.message_type)
    if field.enum_type is not None:
        return {"enum": [value.name for value in field.enum_type.values]}
    return {"type": _JSON_TYPES.get(field.cpp_type, "integer")}


_JSON_TYPES = {
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
}
