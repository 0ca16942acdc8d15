from turnout.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Recorded(_message.Message):
    __slots__ = ("at_ns", "model", "version", "digest", "arm", "asked_version", "request_id", "routing_key", "routing_key_hash", "parameters", "headers", "wanted", "rows", "inputs", "filled", "allowed_us", "code", "message", "outputs", "total_ns", "stages_ns", "router", "dropped")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Parameter
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Parameter, _Mapping]] = ...) -> None: ...
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    ASKED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    FILLED_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_US_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    STAGES_NS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    at_ns: int
    model: str
    version: str
    digest: str
    arm: str
    asked_version: str
    request_id: str
    routing_key: bytes
    routing_key_hash: bytes
    parameters: _containers.MessageMap[str, Parameter]
    headers: _containers.ScalarMap[str, str]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    rows: int
    inputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    filled: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    allowed_us: int
    code: int
    message: str
    outputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    total_ns: int
    stages_ns: _containers.RepeatedScalarFieldContainer[int]
    router: str
    dropped: int
    def __init__(self, at_ns: _Optional[int] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[str] = ..., arm: _Optional[str] = ..., asked_version: _Optional[str] = ..., request_id: _Optional[str] = ..., routing_key: _Optional[bytes] = ..., routing_key_hash: _Optional[bytes] = ..., parameters: _Optional[_Mapping[str, Parameter]] = ..., headers: _Optional[_Mapping[str, str]] = ..., wanted: _Optional[_Iterable[str]] = ..., rows: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., filled: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., allowed_us: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., outputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., total_ns: _Optional[int] = ..., stages_ns: _Optional[_Iterable[int]] = ..., router: _Optional[str] = ..., dropped: _Optional[int] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("bool_value", "int_value", "float_value", "string_value", "uint_value")
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    UINT_VALUE_FIELD_NUMBER: _ClassVar[int]
    bool_value: bool
    int_value: int
    float_value: float
    string_value: str
    uint_value: int
    def __init__(self, bool_value: _Optional[bool] = ..., int_value: _Optional[int] = ..., float_value: _Optional[float] = ..., string_value: _Optional[str] = ..., uint_value: _Optional[int] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("model", "version", "per_million", "most", "without_outputs", "routing_keys")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PER_MILLION_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEYS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    per_million: int
    most: int
    without_outputs: bool
    routing_keys: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., per_million: _Optional[int] = ..., most: _Optional[int] = ..., without_outputs: _Optional[bool] = ..., routing_keys: _Optional[bool] = ...) -> None: ...
