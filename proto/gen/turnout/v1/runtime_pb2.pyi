from turnout.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstanceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTANCE_STATE_UNSPECIFIED: _ClassVar[InstanceState]
    LOADING: _ClassVar[InstanceState]
    READY: _ClassVar[InstanceState]
    DRAINING: _ClassVar[InstanceState]
    BACKOFF: _ClassVar[InstanceState]
    FAILED: _ClassVar[InstanceState]
INSTANCE_STATE_UNSPECIFIED: InstanceState
LOADING: InstanceState
READY: InstanceState
DRAINING: InstanceState
BACKOFF: InstanceState
FAILED: InstanceState

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RuntimeState(_message.Message):
    __slots__ = ("runtime", "instances", "draining")
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    runtime: str
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    draining: bool
    def __init__(self, runtime: _Optional[str] = ..., instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("id", "model", "version", "digest", "state", "reason", "data_socket", "slots", "signature", "pid", "restarts", "pad_to", "sequence_batching", "batching")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DATA_SOCKET_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    PAD_TO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_BATCHING_FIELD_NUMBER: _ClassVar[int]
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    version: str
    digest: str
    state: InstanceState
    reason: str
    data_socket: str
    slots: int
    signature: _tensor_pb2.Signature
    pid: int
    restarts: int
    pad_to: bytes
    sequence_batching: bytes
    batching: bytes
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[str] = ..., state: _Optional[_Union[InstanceState, str]] = ..., reason: _Optional[str] = ..., data_socket: _Optional[str] = ..., slots: _Optional[int] = ..., signature: _Optional[_Union[_tensor_pb2.Signature, _Mapping]] = ..., pid: _Optional[int] = ..., restarts: _Optional[int] = ..., pad_to: _Optional[bytes] = ..., sequence_batching: _Optional[bytes] = ..., batching: _Optional[bytes] = ...) -> None: ...
