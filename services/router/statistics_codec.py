"""What was counted, in the protocol's words."""

from inference import grpc_service_pb2 as pb
from services.router.ledger import executions, rows
from turnout.v1 import link_pb2


def model_statistics(counted: link_pb2.VersionStats) -> pb.ModelStatistics:
    """The protocol's message. Batch times are those of whole batches, the others summed over requests."""
    took_ns = counted.queue_ns + counted.input_ns + counted.compute_ns + counted.output_ns
    return pb.ModelStatistics(
        name=counted.model,
        version=counted.version,
        last_inference=counted.last_ms,
        inference_count=rows(counted),
        execution_count=executions(counted),
        inference_stats=pb.InferStatistics(
            success=_spent(counted.success, took_ns),
            fail=_spent(counted.fail, counted.fail_ns),
            queue=_spent(counted.success, counted.queue_ns),
            compute_input=_spent(counted.success, counted.input_ns),
            compute_infer=_spent(counted.success, counted.compute_ns),
            compute_output=_spent(counted.success, counted.output_ns),
            cache_hit=_spent(0, 0),
            cache_miss=_spent(0, 0),
        ),
        batch_stats=[
            pb.InferBatchStatistics(
                batch_size=size.rows,
                compute_input=_spent(size.count, size.input_ns),
                compute_infer=_spent(size.count, size.compute_ns),
                compute_output=_spent(size.count, size.output_ns),
            )
            for size in counted.sizes
        ],
    )


def _spent(count: int, nanoseconds: int) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=count, ns=nanoseconds)
