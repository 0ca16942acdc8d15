from turnout.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FeatureLookup(_message.Message):
    __slots__ = ("id", "deadline_us", "request_id", "views", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    deadline_us: int
    request_id: str
    views: _containers.RepeatedCompositeFieldContainer[ViewLookup]
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., deadline_us: _Optional[int] = ..., request_id: _Optional[str] = ..., views: _Optional[_Iterable[_Union[ViewLookup, _Mapping]]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class ViewLookup(_message.Message):
    __slots__ = ("view", "version", "entities", "columns")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    view: str
    version: int
    entities: _containers.RepeatedCompositeFieldContainer[EntityKey]
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, view: _Optional[str] = ..., version: _Optional[int] = ..., entities: _Optional[_Iterable[_Union[EntityKey, _Mapping]]] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class EntityKey(_message.Message):
    __slots__ = ("int_value", "string_value", "bytes_value")
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
    int_value: int
    string_value: str
    bytes_value: bytes
    def __init__(self, int_value: _Optional[int] = ..., string_value: _Optional[str] = ..., bytes_value: _Optional[bytes] = ...) -> None: ...

class FeatureAnswer(_message.Message):
    __slots__ = ("id", "code", "message", "views", "total_ns", "retry_after_us")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: int
    message: str
    views: _containers.RepeatedCompositeFieldContainer[ViewValues]
    total_ns: int
    retry_after_us: int
    def __init__(self, id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., views: _Optional[_Iterable[_Union[ViewValues, _Mapping]]] = ..., total_ns: _Optional[int] = ..., retry_after_us: _Optional[int] = ...) -> None: ...

class ViewValues(_message.Message):
    __slots__ = ("view", "version", "columns", "statuses")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    view: str
    version: int
    columns: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    statuses: bytes
    def __init__(self, view: _Optional[str] = ..., version: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., statuses: _Optional[bytes] = ...) -> None: ...
