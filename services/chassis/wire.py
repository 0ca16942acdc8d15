"""Generated messages <-> core values, for every service that speaks turnout.v1."""

from services.core.signature import Signature, TensorSpec
from turnout.v1 import tensor_pb2 as pb


def signature_to_proto(signature: Signature) -> pb.Signature:
    return pb.Signature(
        inputs=[pb.TensorSpec(name=s.name, datatype=s.datatype, shape=s.shape) for s in signature.inputs],
        outputs=[pb.TensorSpec(name=s.name, datatype=s.datatype, shape=s.shape) for s in signature.outputs],
        batches=signature.batches,
        platform=signature.platform,
        on_request=signature.on_request,
        name=signature.name,
        more=[signature_to_proto(each) for each in signature.more],
        decoupled=signature.decoupled,
    )


def signature_from_proto(message: pb.Signature) -> Signature:
    return Signature(
        inputs=tuple(TensorSpec(s.name, s.datatype, tuple(s.shape)) for s in message.inputs),
        outputs=tuple(TensorSpec(s.name, s.datatype, tuple(s.shape)) for s in message.outputs),
        batches=message.batches,
        platform=message.platform,
        on_request=tuple(message.on_request),
        name=message.name,
        more=tuple(signature_from_proto(each) for each in message.more),
        decoupled=message.decoupled,
    )
