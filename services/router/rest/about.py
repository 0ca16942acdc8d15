"""What the routes of the V2 API say of themselves in the API's description."""

from inference import grpc_service_pb2
from services.chassis.openapi import About, Named, Schema
from services.core.tensor import DATATYPES
from services.router.plain import schema_of
from turnout.triton import model_config_pb2

OCTETS = "application/octet-stream"
TIMEOUT = {"X-Request-Timeout-Ms": "Milliseconds until the answer is of no use any more."}


def made_of(needed: str, **properties: Schema) -> Schema:
    """An object; `needed` names the properties that are always there."""
    return {"type": "object", "required": needed.split(), "properties": properties}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
ANYTHING: Schema = {}
PARAMETERS = Named("Parameters", {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
DATATYPE = Named("Datatype", {"enum": sorted(DATATYPES)})
_SIZES: Schema = {"type": "array", "items": {"type": "integer", "minimum": -1}}
_SHAPE: Schema = {"type": "array", "items": WHOLE}
_DATA: Schema = {"type": "array", "description": "Nested, or flat in row-major order."}
TENSOR_SPEC = Named("TensorSpec", made_of("name datatype shape", name=TEXT, datatype=DATATYPE, shape=_SIZES))
INPUT = Named(
    "InferInput",
    made_of("name datatype shape", name=TEXT, datatype=DATATYPE, shape=_SHAPE, data=_DATA, parameters=PARAMETERS),
)
WANTED = Named("InferRequestedOutput", made_of("name", name=TEXT, parameters=PARAMETERS))
OUTPUT = Named(
    "InferOutput",
    made_of("name datatype shape", name=TEXT, datatype=DATATYPE, shape=_SHAPE, data=_DATA, parameters=PARAMETERS),
)
_INFER_REQUEST = Named(
    "InferRequest",
    made_of(
        "inputs",
        id=TEXT,
        parameters=PARAMETERS,
        inputs={"type": "array", "items": INPUT},
        outputs={"type": "array", "items": WANTED},
    ),
)
_INFER_RESPONSE = Named(
    "InferResponse",
    made_of(
        "model_name model_version outputs",
        model_name=TEXT,
        model_version=TEXT,
        id=TEXT,
        parameters=PARAMETERS,
        outputs={"type": "array", "items": OUTPUT},
    ),
)
_MODEL = Named(
    "ModelMetadata",
    made_of(
        "name versions platform inputs outputs",
        name=TEXT,
        versions={"type": "array", "items": TEXT},
        platform=TEXT,
        inputs={"type": "array", "items": TENSOR_SPEC},
        outputs={"type": "array", "items": TENSOR_SPEC},
    ),
)
_SERVER = Named(
    "ServerMetadata",
    made_of("name version extensions", name=TEXT, version=TEXT, extensions={"type": "array", "items": TEXT}),
)

SERVER = About("What this server is, and which extensions of the protocol it has.", "server", _SERVER)
LIVE = About("Whether the process answers at all.", "server", made_of("live", live=FLAG))
READY = About("Whether it takes requests; 503 when it does not.", "server", made_of("ready", ready=FLAG), codes=(503,))
MODELS = About("The names of all models.", "models", made_of("models", models={"type": "array", "items": TEXT}))
MODEL = About("What a model takes and gives.", "models", _MODEL)
MODEL_READY = About(
    "Whether it takes requests: 404 where nobody has it, 503 where it loads, or is let go.",
    "models",
    made_of("name ready", name=TEXT, ready=FLAG),
)
CONFIG = About(
    "How a model is called, batched and run, in Triton's words.",
    "models",
    schema_of(model_config_pb2.ModelConfig.DESCRIPTOR),
)
STATISTICS = About(
    "What was counted, summed over all replicas, up to now.",
    "models",
    made_of(
        "model_stats",
        model_stats={"type": "array", "items": schema_of(grpc_service_pb2.ModelStatistics.DESCRIPTOR)},
    ),
)
INFER = About(
    "Rows of inputs in, rows of outputs out.",
    "inference",
    _INFER_RESPONSE,
    body=_INFER_REQUEST,
    answer_types=(OCTETS,),
    body_types=(OCTETS,),
    headers=TIMEOUT
    | {"Inference-Header-Content-Length": "Bytes of JSON that the body begins with; those of tensors follow."},
)
_FLAT = Named(
    "FlatRequest",
    {
        "type": "object",
        "properties": {"id": TEXT, "parameters": {"type": "object"}},
        "additionalProperties": True,
        "description": "Values of inputs by name: one value, or lists of them. Other single values are parameters.",
    },
)
_FLAT_ANSWER = Named(
    "FlatAnswer",
    made_of("model_name model_version", model_name=TEXT, model_version=TEXT, id=TEXT)
    | {"additionalProperties": True, "description": "Values of outputs by name."},
)
GENERATE = About(
    "Values of inputs by name in, those of outputs out; for models that give one answer.",
    "inference",
    _FLAT_ANSWER,
    body=_FLAT,
    headers=TIMEOUT,
)
GENERATE_STREAM = About(
    "The same for any number of answers, each a server-sent event.",
    "inference",
    answer_types=("text/event-stream",),
    body=_FLAT,
    headers=TIMEOUT,
)
