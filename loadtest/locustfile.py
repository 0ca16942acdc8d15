"""Real digits through the router, each under its user's routing key; prints the split it saw when it stops.

    make up &                      # in another terminal: the demo's models and rows
    make load                      # 20 users for 30 s; ARGS="--users 50" opens the web page instead

After `make up ARGS="--port-offset 200"` the router is elsewhere: ARGS="… --host 127.0.0.1:8201".

It has an environment of its own (locust brings gevent) and needs only grpcio and the generated code.
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc.experimental.gevent as grpc_gevent

grpc_gevent.init_gevent()

import grpc  # noqa: E402 - after gevent has patched it
import numpy as np  # noqa: E402
from locust import User, between, events, task  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "proto" / "gen"))

from inference import grpc_service_pb2 as pb  # noqa: E402
from inference import grpc_service_pb2_grpc  # noqa: E402

TIMEOUT_S = 5.0
seen: Counter[tuple[str, str]] = Counter()  # (arm, version) -> answers
right: Counter[str] = Counter()  # version -> right answers


@events.init_command_line_parser.add_listener
def _arguments(parser: Any) -> None:
    parser.add_argument("--rows", default=str(ROOT / ".turnout" / "demo" / "held_out.npz"), help="held-out rows")


@events.quitting.add_listener
def _print_split(**_: Any) -> None:
    total = sum(seen.values())
    print("\nsplit as served:")
    for (arm, version), count in sorted(seen.items()):
        share = f"{100 * count / total:.2f}%"
        print(f"  {arm:8} version {version}: {count:7,} answers, {share:>7}")
    for version in sorted(right):
        served = sum(count for (_, of), count in seen.items() if of == version)
        print(f"  version {version} was right in {100 * right[version] / served:.1f}%")


class DigitsUser(User):
    """One product service's caller: sends images, each for one of 100,000 users."""

    host = "127.0.0.1:8001"
    wait_time = between(0.005, 0.02)

    def on_start(self) -> None:
        rows = np.load(self.environment.parsed_options.rows, allow_pickle=False)
        self._pixels, self._labels = rows["digits"], rows["digit_labels"]
        self._rng = np.random.default_rng()
        self._channel = grpc.insecure_channel(self.host)
        self._stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def on_stop(self) -> None:
        self._channel.close()

    @task
    def infer(self) -> None:
        index = int(self._rng.integers(len(self._labels)))
        user = f"user-{self._rng.integers(100_000)}"
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 64])
        request = pb.ModelInferRequest(
            model_name="digits", inputs=[tensor], raw_input_contents=[self._pixels[index].astype("<f4").tobytes()]
        )
        begun, failure, reply = time.perf_counter(), None, None
        try:
            reply, call = self._stub.ModelInfer.with_call(
                request, timeout=TIMEOUT_S, metadata=[("x-routing-key", user)]
            )
            arm = dict(call.trailing_metadata()).get("turnout-arm", "")
            seen[arm, reply.model_version] += 1
            label = np.frombuffer(reply.raw_output_contents[0], "<i8")[0]
            right[reply.model_version] += int(label == self._labels[index])
        except grpc.RpcError as error:
            failure = error
        self.environment.events.request.fire(
            request_type="grpc",
            name="ModelInfer digits",
            response_time=(time.perf_counter() - begun) * 1000,
            response_length=reply.ByteSize() if reply else 0,
            exception=failure,
        )
