from turnout.v1 import feature_pb2 as _feature_pb2
from turnout.v1 import recorded_pb2 as _recorded_pb2
from turnout.v1 import shadow_pb2 as _shadow_pb2
from turnout.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Executed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTED_NO: _ClassVar[Executed]
    EXECUTED_MAYBE: _ClassVar[Executed]
    EXECUTED_YES: _ClassVar[Executed]
EXECUTED_NO: Executed
EXECUTED_MAYBE: Executed
EXECUTED_YES: Executed

class Frame(_message.Message):
    __slots__ = ("hello", "requests", "replies", "cancels", "drain", "serving", "lookups", "features", "mirrors", "releases", "arena_opened", "credits", "records", "sampling", "stats")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MIRRORS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    ARENA_OPENED_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    replies: _containers.RepeatedCompositeFieldContainer[Reply]
    cancels: _containers.RepeatedScalarFieldContainer[int]
    drain: Drain
    serving: Serving
    lookups: _containers.RepeatedCompositeFieldContainer[_feature_pb2.FeatureLookup]
    features: _containers.RepeatedCompositeFieldContainer[_feature_pb2.FeatureAnswer]
    mirrors: _containers.RepeatedCompositeFieldContainer[_shadow_pb2.Mirror]
    releases: _containers.RepeatedScalarFieldContainer[int]
    arena_opened: ArenaOpened
    credits: _containers.RepeatedCompositeFieldContainer[Credit]
    records: _containers.RepeatedCompositeFieldContainer[_recorded_pb2.Recorded]
    sampling: _recorded_pb2.Sampling
    stats: _containers.RepeatedCompositeFieldContainer[Stats]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., replies: _Optional[_Iterable[_Union[Reply, _Mapping]]] = ..., cancels: _Optional[_Iterable[int]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., serving: _Optional[_Union[Serving, _Mapping]] = ..., lookups: _Optional[_Iterable[_Union[_feature_pb2.FeatureLookup, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_feature_pb2.FeatureAnswer, _Mapping]]] = ..., mirrors: _Optional[_Iterable[_Union[_shadow_pb2.Mirror, _Mapping]]] = ..., releases: _Optional[_Iterable[int]] = ..., arena_opened: _Optional[_Union[ArenaOpened, _Mapping]] = ..., credits: _Optional[_Iterable[_Union[Credit, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[_recorded_pb2.Recorded, _Mapping]]] = ..., sampling: _Optional[_Union[_recorded_pb2.Sampling, _Mapping]] = ..., stats: _Optional[_Iterable[_Union[Stats, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("service", "instance", "protocol", "arena")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    service: str
    instance: str
    protocol: int
    arena: str
    def __init__(self, service: _Optional[str] = ..., instance: _Optional[str] = ..., protocol: _Optional[int] = ..., arena: _Optional[str] = ...) -> None: ...

class ArenaOpened(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("id", "bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    bytes: int
    def __init__(self, id: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "model", "version", "rows", "deadline_us", "inputs", "outputs", "tries", "priority", "queue_timeout_us", "shadow", "request_id", "traceparent", "digest", "sequence", "sequence_rows", "sequences_over", "signature_name", "credit")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIMEOUT_US_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ROWS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_OVER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_NAME_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    id: int
    model: str
    version: str
    rows: int
    deadline_us: int
    inputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    tries: int
    priority: int
    queue_timeout_us: int
    shadow: bool
    request_id: str
    traceparent: str
    digest: str
    sequence: Sequence
    sequence_rows: _containers.RepeatedScalarFieldContainer[int]
    sequences_over: _containers.RepeatedScalarFieldContainer[int]
    signature_name: str
    credit: int
    def __init__(self, id: _Optional[int] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., rows: _Optional[int] = ..., deadline_us: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., tries: _Optional[int] = ..., priority: _Optional[int] = ..., queue_timeout_us: _Optional[int] = ..., shadow: _Optional[bool] = ..., request_id: _Optional[str] = ..., traceparent: _Optional[str] = ..., digest: _Optional[str] = ..., sequence: _Optional[_Union[Sequence, _Mapping]] = ..., sequence_rows: _Optional[_Iterable[int]] = ..., sequences_over: _Optional[_Iterable[int]] = ..., signature_name: _Optional[str] = ..., credit: _Optional[int] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("number", "text", "start", "end")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    start: bool
    end: bool
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ..., start: _Optional[bool] = ..., end: _Optional[bool] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("id", "code", "message", "executed", "outputs", "stages_ns", "total_ns", "batch_rows", "retries", "digest", "retry_after_us", "expected_wait_us", "seq", "final")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    STAGES_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_WAIT_US_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: int
    message: str
    executed: Executed
    outputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    stages_ns: _containers.RepeatedScalarFieldContainer[int]
    total_ns: int
    batch_rows: int
    retries: int
    digest: str
    retry_after_us: int
    expected_wait_us: int
    seq: int
    final: bool
    def __init__(self, id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., executed: _Optional[_Union[Executed, str]] = ..., outputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., stages_ns: _Optional[_Iterable[int]] = ..., total_ns: _Optional[int] = ..., batch_rows: _Optional[int] = ..., retries: _Optional[int] = ..., digest: _Optional[str] = ..., retry_after_us: _Optional[int] = ..., expected_wait_us: _Optional[int] = ..., seq: _Optional[int] = ..., final: _Optional[bool] = ...) -> None: ...

class Served(_message.Message):
    __slots__ = ("model", "version", "digest", "signature", "max_batch_rows", "max_request_rows", "slots", "keeps_state", "batching")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_STATE_FIELD_NUMBER: _ClassVar[int]
    BATCHING_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    digest: str
    signature: _tensor_pb2.Signature
    max_batch_rows: int
    max_request_rows: int
    slots: int
    keeps_state: bool
    batching: bytes
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[str] = ..., signature: _Optional[_Union[_tensor_pb2.Signature, _Mapping]] = ..., max_batch_rows: _Optional[int] = ..., max_request_rows: _Optional[int] = ..., slots: _Optional[int] = ..., keeps_state: _Optional[bool] = ..., batching: _Optional[bytes] = ...) -> None: ...

class Serving(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Served]
    def __init__(self, models: _Optional[_Iterable[_Union[Served, _Mapping]]] = ...) -> None: ...

class Stats(_message.Message):
    __slots__ = ("asks", "answers", "versions")
    ASKS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    asks: int
    answers: int
    versions: _containers.RepeatedCompositeFieldContainer[VersionStats]
    def __init__(self, asks: _Optional[int] = ..., answers: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[VersionStats, _Mapping]]] = ...) -> None: ...

class VersionStats(_message.Message):
    __slots__ = ("model", "version", "last_ms", "success", "queue_ns", "input_ns", "compute_ns", "output_ns", "fail", "fail_ns", "sizes")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    INPUT_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NS_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    FAIL_NS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    last_ms: int
    success: int
    queue_ns: int
    input_ns: int
    compute_ns: int
    output_ns: int
    fail: int
    fail_ns: int
    sizes: _containers.RepeatedCompositeFieldContainer[SizeStats]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., last_ms: _Optional[int] = ..., success: _Optional[int] = ..., queue_ns: _Optional[int] = ..., input_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ..., output_ns: _Optional[int] = ..., fail: _Optional[int] = ..., fail_ns: _Optional[int] = ..., sizes: _Optional[_Iterable[_Union[SizeStats, _Mapping]]] = ...) -> None: ...

class SizeStats(_message.Message):
    __slots__ = ("rows", "count", "input_ns", "compute_ns", "output_ns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    INPUT_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    count: int
    input_ns: int
    compute_ns: int
    output_ns: int
    def __init__(self, rows: _Optional[int] = ..., count: _Optional[int] = ..., input_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ..., output_ns: _Optional[int] = ...) -> None: ...
