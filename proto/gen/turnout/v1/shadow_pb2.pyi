from turnout.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mirror(_message.Message):
    __slots__ = ("model", "served_version", "served_digest", "candidate_version", "request_id", "rows", "inputs", "outputs", "served_total_ns", "served_compute_ns", "routing_key")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVED_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SERVED_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    SERVED_COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    model: str
    served_version: str
    served_digest: str
    candidate_version: str
    request_id: str
    rows: int
    inputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    outputs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    served_total_ns: int
    served_compute_ns: int
    routing_key: bytes
    def __init__(self, model: _Optional[str] = ..., served_version: _Optional[str] = ..., served_digest: _Optional[str] = ..., candidate_version: _Optional[str] = ..., request_id: _Optional[str] = ..., rows: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., served_total_ns: _Optional[int] = ..., served_compute_ns: _Optional[int] = ..., routing_key: _Optional[bytes] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("candidates",)
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    candidates: _containers.RepeatedCompositeFieldContainer[CandidateReport]
    def __init__(self, candidates: _Optional[_Iterable[_Union[CandidateReport, _Mapping]]] = ...) -> None: ...

class CandidateReport(_message.Message):
    __slots__ = ("model", "served_version", "candidate_version", "served_digest", "candidate_digest", "since_s", "mirrored", "compared", "rows", "errors", "dropped", "outputs", "served_latency", "candidate_latency", "worst")
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVED_VERSION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    MIRRORED_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SERVED_LATENCY_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_LATENCY_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    model: str
    served_version: str
    candidate_version: str
    served_digest: str
    candidate_digest: str
    since_s: float
    mirrored: int
    compared: int
    rows: int
    errors: _containers.ScalarMap[str, int]
    dropped: _containers.ScalarMap[str, int]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputReport]
    served_latency: Latency
    candidate_latency: Latency
    worst: _containers.RepeatedCompositeFieldContainer[WorstExample]
    def __init__(self, model: _Optional[str] = ..., served_version: _Optional[str] = ..., candidate_version: _Optional[str] = ..., served_digest: _Optional[str] = ..., candidate_digest: _Optional[str] = ..., since_s: _Optional[float] = ..., mirrored: _Optional[int] = ..., compared: _Optional[int] = ..., rows: _Optional[int] = ..., errors: _Optional[_Mapping[str, int]] = ..., dropped: _Optional[_Mapping[str, int]] = ..., outputs: _Optional[_Iterable[_Union[OutputReport, _Mapping]]] = ..., served_latency: _Optional[_Union[Latency, _Mapping]] = ..., candidate_latency: _Optional[_Union[Latency, _Mapping]] = ..., worst: _Optional[_Iterable[_Union[WorstExample, _Mapping]]] = ...) -> None: ...

class OutputReport(_message.Message):
    __slots__ = ("name", "kind", "rows", "agreeing_rows", "mean_abs_difference", "max_abs_difference", "mean_rel_difference", "max_rel_difference", "incomparable_rows")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    AGREEING_ROWS_FIELD_NUMBER: _ClassVar[int]
    MEAN_ABS_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MEAN_REL_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_REL_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    INCOMPARABLE_ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    rows: int
    agreeing_rows: int
    mean_abs_difference: float
    max_abs_difference: float
    mean_rel_difference: float
    max_rel_difference: float
    incomparable_rows: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., rows: _Optional[int] = ..., agreeing_rows: _Optional[int] = ..., mean_abs_difference: _Optional[float] = ..., max_abs_difference: _Optional[float] = ..., mean_rel_difference: _Optional[float] = ..., max_rel_difference: _Optional[float] = ..., incomparable_rows: _Optional[int] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("count", "mean_ms", "p50_ms", "p99_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_MS_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    def __init__(self, count: _Optional[int] = ..., mean_ms: _Optional[float] = ..., p50_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...

class WorstExample(_message.Message):
    __slots__ = ("request_id", "output", "difference", "served", "candidate", "at_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    output: str
    difference: float
    served: str
    candidate: str
    at_s: float
    def __init__(self, request_id: _Optional[str] = ..., output: _Optional[str] = ..., difference: _Optional[float] = ..., served: _Optional[str] = ..., candidate: _Optional[str] = ..., at_s: _Optional[float] = ...) -> None: ...
