"""Versions as a router knows them, without a mesh."""

from collections.abc import Sequence
from typing import Any

from services.core.model_spec import ModelSpec
from services.router.table import Target
from tests.support.puppets import Spec, signature
from turnout.v1 import link_pb2


def target(
    inputs: Sequence[Spec], outputs: Sequence[Spec] = (), *, name: str = "", more: Sequence[Any] = (), **spec: Any
) -> Target:
    """Version 1 of model m; `name` and `more` of its signature, `spec` of its models/m."""
    usual = signature(inputs, outputs or [("y", "FP32", (-1, 2))])
    usual.name = name
    usual.more.extend(more)
    served = link_pb2.Served(model="m", version="1", signature=usual, max_request_rows=64)
    return Target(served, ModelSpec.model_validate(spec))
