"""The methods of PredictionService and ModelService that are not hot, by their literal names on the wire."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage

from services.chassis.front import certificate_of, remaining_s
from services.core.errors import InvalidRequestError
from services.router.access.gate import Access
from services.router.access.interceptor import headers_of
from services.router.asking import Asker, Origin
from services.router.flight import REQUEST_ID, Flight, request_id_of
from services.router.grpc_front import ARM
from services.router.inference import Inference
from services.router.tfserving import results
from services.router.tfserving.described import SIGNATURE_DEF, Described, signature_defs
from services.router.tfserving.examples import ExamplesDraft, from_input
from services.router.tfserving.predict_codec import answered_signature, inference_of, model_spec, version_of
from services.router.tfserving.reload import Reload
from turnout.tfserving import model_service_pb2 as service_pb
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.v1 import link_pb2

_SIGNATURE_DEF_MAP = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_CLASSIFY, _REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
_MAX_TASKS = 64
Context = grpc.aio.ServicerContext


class Found(NamedTuple):
    """What a model's outputs came to, and which version and signature gave them."""

    values: list[Any]
    spec: pb.ModelSpec
    arm: str


class PredictionService:
    """All but Predict, which the front door serves."""

    def __init__(self, asker: Asker, described: Described) -> None:
        self._asker = asker
        self._described = described

    def add_to(self, server: grpc.aio.Server) -> None:
        methods: dict[str, tuple[Any, Any]] = {
            "Classify": (self.classify, pb.ClassificationRequest),
            "Regress": (self.regress, pb.RegressionRequest),
            "MultiInference": (self.multi_inference, pb.MultiInferenceRequest),
            "GetModelMetadata": (self.get_model_metadata, pb.GetModelMetadataRequest),
        }
        _add(server, "PredictionService", methods)

    async def classify(self, request: pb.ClassificationRequest, context: Context) -> pb.ClassificationResponse:
        found = await self._asked(request.model_spec, request.input, results.classified, context)
        return pb.ClassificationResponse(result=_classifications(found.values), model_spec=found.spec)

    async def regress(self, request: pb.RegressionRequest, context: Context) -> pb.RegressionResponse:
        found = await self._asked(request.model_spec, request.input, results.regressed, context)
        return pb.RegressionResponse(result=_regressions(found.values), model_spec=found.spec)

    async def multi_inference(self, request: pb.MultiInferenceRequest, context: Context) -> pb.MultiInferenceResponse:
        """Each task is a request of its own; the first that fails fails them all."""
        tasks = request.tasks
        if not 0 < len(tasks) <= _MAX_TASKS:
            raise InvalidRequestError(f"there are {len(tasks)} tasks; give 1 to {_MAX_TASKS}")
        wanted = [_results_of(task.method_name) for task in tasks]
        if len({task.model_spec.name for task in tasks}) > 1:
            raise InvalidRequestError("tasks name different models; all of them are for one")
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(self._asked(task.model_spec, request.input, results_of, context))
                    for task, results_of in zip(tasks, wanted, strict=True)
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        answers = []
        for task, each in zip(tasks, running, strict=True):
            found = each.result()
            if task.method_name == _CLASSIFY:
                result = pb.InferenceResult(classification_result=_classifications(found.values))
            else:
                result = pb.InferenceResult(regression_result=_regressions(found.values))
            result.model_spec.CopyFrom(found.spec)
            answers.append(result)
        return pb.MultiInferenceResponse(results=answers)

    async def get_model_metadata(self, request: pb.GetModelMetadataRequest, _: Context) -> pb.GetModelMetadataResponse:
        fields = list(request.metadata_field)
        if not fields or set(fields) != {SIGNATURE_DEF}:
            raise InvalidRequestError(f"metadata_field is {fields}; ask for {SIGNATURE_DEF!r}, which is all there is")
        target = self._described.target(_name(request.model_spec), version_of(request.model_spec))
        packed = AnyMessage(type_url=_SIGNATURE_DEF_MAP, value=signature_defs(target).SerializeToString())
        return pb.GetModelMetadataResponse(
            model_spec=model_spec(target.model, target.version), metadata={SIGNATURE_DEF: packed}
        )

    async def _asked(
        self,
        spec: pb.ModelSpec,
        given: Any,
        results_of: Callable[[str, Any], list[Any]],
        context: Context,
    ) -> Found:
        """What `results_of` makes of the answer to one request."""
        started_ns = perf_counter_ns()
        headers = headers_of(context)
        origin = Origin(headers, remaining_s(context), started_ns, context.peer(), certificate_of(context))
        parse = partial(_parse, spec, given)
        found = await self._asker.ask(parse, partial(_found, results_of), origin)
        trailing = [(ARM, found.arm)]
        if request_id := request_id_of(headers):
            trailing.append((REQUEST_ID, request_id))
        context.set_trailing_metadata(tuple(trailing))
        return found


class ModelService:
    """States of versions, and lists of models where its listener takes them."""

    def __init__(self, described: Described, reload: Reload, access: Access) -> None:
        self.described = described
        self._reload = reload
        self._access = access

    def add_to(self, server: grpc.aio.Server) -> None:
        methods: dict[str, tuple[Any, Any]] = {
            "GetModelStatus": (self.get_model_status, service_pb.GetModelStatusRequest),
            "HandleReloadConfigRequest": (self.reload_config, service_pb.ReloadConfigRequest),
        }
        _add(server, "ModelService", methods)

    async def get_model_status(
        self, request: service_pb.GetModelStatusRequest, _: Context
    ) -> service_pb.GetModelStatusResponse:
        return self.described.status(_name(request.model_spec), version_of(request.model_spec))

    async def reload_config(
        self, request: service_pb.ReloadConfigRequest, context: Context
    ) -> service_pb.ReloadConfigResponse:
        headers, peer, certificate = headers_of(context), context.peer(), certificate_of(context)

        def may_manage(model: str) -> None:
            self._access.require("manage", model, headers, peer, certificate)

        await self._reload(request, remaining_s(context), may_manage)
        return service_pb.ReloadConfigResponse(status=service_pb.StatusProto())


def _add(server: grpc.aio.Server, service: str, methods: Mapping[str, tuple[Any, Any]]) -> None:
    handlers = {name: _handler(method, message) for name, (method, message) in methods.items()}
    server.add_registered_method_handlers(f"tensorflow.serving.{service}", handlers)  # type: ignore[attr-defined]


def _handler(method: Callable[[Any, Context], Awaitable[Any]], message: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=message.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )


def _name(spec: pb.ModelSpec) -> str:
    return inference_of(spec, 0).model


def _parse(spec: pb.ModelSpec, given: Any) -> tuple[Inference, ExamplesDraft]:
    return inference_of(spec, given.ByteSize()), from_input(given)


def _found(results_of: Callable[[str, Any], list[Any]], flight: Flight, reply: link_pb2.Reply) -> Found:
    target = flight.target
    spec = model_spec(target.model, target.version, answered_signature(flight))
    return Found(results_of(target.model, reply.outputs), spec, flight.arm)


def _results_of(method_name: str) -> Callable[[str, Any], list[Any]]:
    known = {_CLASSIFY: results.classified, _REGRESS: results.regressed}
    if method_name not in known:
        raise InvalidRequestError(f"method_name is {method_name[:64]!r}; it is {_CLASSIFY} or {_REGRESS}")
    return known[method_name]


def _classifications(rows: list[list[results.Class]]) -> pb.ClassificationResult:
    classes = [pb.Classifications(classes=[pb.Class(label=text, score=score) for text, score in row]) for row in rows]
    return pb.ClassificationResult(classifications=classes)


def _regressions(values: list[Any]) -> pb.RegressionResult:
    return pb.RegressionResult(regressions=[pb.Regression(value=value) for value in values])
