"""What the routes of the V1 API say of themselves in the API's description."""

from services.chassis.openapi import About, Named, Schema
from services.router.rest.about import ANYTHING, FLAG, PARAMETERS, TEXT, TIMEOUT, made_of

_TAG = "v1"
_LIST: Schema = {"type": "array"}
_FEATURES: Schema = {"type": "object", "description": "Values, or lists of them, by feature."}
_REQUEST = Named(
    "V1Request",
    {
        "type": "object",
        "description": "predict takes instances or inputs, classify and regress take examples.",
        "properties": {
            "signature_name": TEXT,
            "instances": {**_LIST, "description": "A value, or an object of named values, for each row."},
            "inputs": {"description": "A column, or an object of named columns."},
            "examples": {**_LIST, "items": _FEATURES},
            "context": {**_FEATURES, "description": "Features that all examples have."},
            "parameters": PARAMETERS,
        },
    },
)
_ANSWER = Named(
    "V1Answer",
    {
        "type": "object",
        "description": "What instances, inputs and examples are answered with.",
        "properties": {"predictions": _LIST, "outputs": ANYTHING, "results": _LIST},
    },
)
_STATUS = made_of(
    "version state status", version=TEXT, state=TEXT, status=made_of("", error_code=TEXT, error_message=TEXT)
)
_STATE = Named(
    "V1Status",
    {
        "anyOf": [
            made_of("model_version_status", model_version_status={**_LIST, "items": _STATUS}),
            made_of("name ready", name=TEXT, ready=FLAG),
        ]
    },
)

INFER = About(
    "predict, classify or regress, as TensorFlow Serving does.",
    _TAG,
    _ANSWER,
    body=_REQUEST,
    headers=TIMEOUT,
    names={"verb": {"enum": ["predict", "classify", "regress"]}},
)
STATUS = About("The state of every version; as KServe has it, whether the model takes requests.", _TAG, _STATE)
METADATA = About(
    "A version's signatures.", _TAG, made_of("model_spec metadata", model_spec=ANYTHING, metadata=ANYTHING)
)
MODELS = About("The names of all models.", _TAG, made_of("models", models={**_LIST, "items": TEXT}))
