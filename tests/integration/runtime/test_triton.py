"""Models of other servers of the Open Inference Protocol, passed on to by a worker."""

import json
import subprocess
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from services.core import arrays
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, UNAVAILABLE
from tests.support.mesh import Mesh
from tests.support.remote_server import RemoteServer
from tests.support.runtime_pod import BACKOFF, FAILED, Batcher, Pod, output
from turnout.v1 import link_pb2
from turnout.v1.tensor_pb2 import Tensor

MAX_BATCH_SIZE_2 = b"\x0a\x02\x20\x02"  # ModelConfigResponse{config{max_batch_size: 2}}
DECOUPLED = b"\x0a\x05\x9a\x01\x02\x08\x01"  # config{model_transaction_policy{decoupled: true}}
ECHO = """
import numpy as np

class Model:
    inputs = {"text": ("BYTES", [-1]), "half": ("FP16", [-1, 2]), "brain": ("BF16", [-1]), "yes": ("BOOL", [-1])}
    outputs = {"said": ("BYTES", [-1]), "half2": ("FP16", [-1, 2]), "brain2": ("BF16", [-1]), "no": ("BOOL", [-1])}

    def predict(self, inputs):
        if b"raise" in inputs["text"]:
            raise ValueError("it was told to")
        said = np.array([text + b"\\0!" for text in inputs["text"]], dtype=object)
        return {"said": said, "half2": inputs["half"], "brain2": inputs["brain"], "no": ~inputs["yes"]}
"""


def point(pod: Pod, model: str, url: str, there: str = "sum", version: str = "1", **fields: Any) -> Path:
    folder = pod.models / model / version
    folder.mkdir(parents=True)
    (folder / "remote.json").write_text(json.dumps({"url": url, "model": there, **fields}))
    return folder


def far_inputs(*texts: bytes) -> list[Tensor]:
    rows = len(texts)
    halves = np.arange(rows * 2, dtype=np.float16).reshape(rows, 2)
    given = {
        "text": ("BYTES", np.array(texts, dtype=object)),
        "half": ("FP16", halves),
        "brain": ("BF16", np.arange(rows, dtype=np.uint16) + 0x3F80),
        "yes": ("BOOL", np.arange(rows) % 2 == 0),
    }
    return [
        Tensor(name=name, datatype=datatype, shape=array.shape, data=arrays.encode(array)[1])
        for name, (datatype, array) in given.items()
    ]


async def send(batcher: Batcher, inputs: list[Tensor]) -> link_pb2.Reply:
    return await (await batcher.send_array(np.zeros(inputs[0].shape[0]), inputs=inputs))


async def test_another_mesh_answers_as_it_would_itself(tmp_path: Path, pod: Pod) -> None:
    async with Mesh(tmp_path / "far", only=["runtime-0", "batcher-0", "router"]) as mesh:
        (mesh.repository / "echo" / "1").mkdir(parents=True)
        (mesh.repository / "echo" / "1" / "model.py").write_text(ECHO)
        await mesh.put("models/echo", {"trusted": True, "limits": {"max_request_rows": 4}})
        await mesh.serving("echo", "1")
        address = await mesh.listening("router", "grpc")
        point(pod, "near", f"grpc://{address}", "echo", "7")
        await pod.put("models/near", {})
        async with pod.running(), Batcher(await pod.instance("near", "7")) as batcher:
            signature = batcher.instance.signature
            reply = await send(batcher, far_inputs(b"", b"a\0b", "Köln".encode()))
            none = await send(batcher, far_inputs())
            raised = await send(batcher, far_inputs(b"raise"))
            many = await send(batcher, far_inputs(*[b"x"] * 5))
            after = await send(batcher, far_inputs(b"x"))

    assert [(each.name, each.datatype, list(each.shape)) for each in signature.inputs] == [
        ("text", "BYTES", [-1]), ("half", "FP16", [-1, 2]), ("brain", "BF16", [-1]), ("yes", "BOOL", [-1]),
    ]  # fmt: skip
    assert signature.batches
    assert output(reply, "said").tolist() == [b"\0!", b"a\0b\0!", "Köln".encode() + b"\0!"]
    assert output(reply, "half2").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert [(each.name, each.datatype) for each in reply.outputs][2] == ("brain2", "BF16")
    assert output(reply, "brain2").tolist() == [0x3F80, 0x3F81, 0x3F82]
    assert output(reply, "no").tolist() == [False, True, False]
    assert output(none, "half2").shape == (0, 2)
    assert (raised.code, raised.message) == (INTERNAL, "ValueError: it was told to")
    assert many.code == INVALID_ARGUMENT
    assert "5 rows" in many.message
    assert output(after, "said").tolist() == [b"x\0!"]


async def test_what_the_server_says_and_how_long_it_takes_is_the_callers_to_know(pod: Pod) -> None:
    async with RemoteServer(MAX_BATCH_SIZE_2) as server:
        server.is_ready = False
        url = f"grpc://127.0.0.1:{server.port}"
        point(pod, "sum", url, headers={"x-tenant": "ana"})
        point(pod, "hasty", url, timeout_ms=200)
        await pod.put("models/sum", {"limits": {"max_restarts": 0}})
        await pod.put("models/hasty", {})
        async with pod.running():
            reason = (await pod.instance("sum", "1", BACKOFF)).reason
            server.is_ready = True
            ready = await pod.instance("hasty", "1")  # so that its warm-up is over too
            async with Batcher(await pod.instance("sum", "1")) as batcher:
                server.batches.clear()
                fine = await batcher.run(*[(n, 1) for n in range(5)], deadline_us=19_000_000)
                parts, headers, told_s = sorted(server.batches), server.headers[-1], server.timeouts_s[-1]
                server.fault = (grpc.StatusCode.INVALID_ARGUMENT, "x[0] is odd")
                odd = await batcher.run((1, 1))
                server.fault = (grpc.StatusCode.UNAVAILABLE, "the queue is full")
                full = await batcher.run((1, 1))
                perhaps = await batcher.run(*[(n, 1) for n in range(5)])
                server.fault = (grpc.StatusCode.UNAUTHENTICATED, "who are you?")
                unknown = await batcher.run((1, 1))
                server.fault = None
                server.release.clear()
                for _ in range(3):  # after as many the worker connects anew
                    late = await batcher.run((1, 1), deadline_us=300_000)
                async with Batcher(ready) as hasty:
                    slow = await hasty.run((1, 1))
                server.release.set()
                await server.server.stop(grace=0)
                while "went away" in (gone := await batcher.run((1, 1))).message:
                    pass  # until the worker has seen that the connection is gone
                await server.start()
                back = await batcher.run((2, 3))
                while back.code == UNAVAILABLE:
                    back = await batcher.run((2, 3))

    assert reason == f"{url}: model 'sum' is not ready there"
    assert output(fine, "y").tolist() == [1, 2, 3, 4, 5]
    assert parts == [1, 2, 2]
    assert headers["x-tenant"] == "ana"
    assert (odd.code, odd.message, odd.executed) == (INVALID_ARGUMENT, "x[0] is odd", link_pb2.EXECUTED_YES)
    assert (full.code, full.executed) == (UNAVAILABLE, link_pb2.EXECUTED_NO)
    assert full.message == "the server that has this model says: the queue is full"
    assert (perhaps.code, perhaps.executed) == (UNAVAILABLE, link_pb2.EXECUTED_MAYBE)  # of several parts one may have
    assert (unknown.code, unknown.message) == (
        INTERNAL,
        "the server that has this model says: UNAUTHENTICATED: who are you?",
    )
    assert late.code == slow.code == DEADLINE_EXCEEDED
    assert slow.message == "the server that has this model did not answer within 200 ms"
    assert 0 < told_s < 23  # gRPC rounds it up; without it, it were nine tenths of max_execution_ms
    assert (gone.code, gone.message) == (UNAVAILABLE, "the server that has this model cannot be reached")
    assert gone.executed == link_pb2.EXECUTED_NO
    assert output(back, "y").tolist() == [5]


def certificate(folder: Path) -> tuple[bytes, bytes]:
    """Key and certificate of 127.0.0.1, its own authority."""
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=sum -addext"
    files = ("subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem")
    subprocess.run(["openssl", *words.split(), *files], cwd=folder, check=True, capture_output=True, timeout=20)
    return (folder / "key.pem").read_bytes(), (folder / "ca.pem").read_bytes()


async def test_a_server_that_is_away_is_waited_for_and_what_cannot_be_is_said(tmp_path: Path, pod: Pod) -> None:
    tls = certificate(tmp_path)
    async with RemoteServer(DECOUPLED) as server, RemoteServer(tls=tls) as secure:
        url = f"grpc://127.0.0.1:{server.port}"
        point(pod, "sum", url, version="1")
        hidden = {"url": f"grpcs://127.0.0.1:{secure.port}", "root_certificates": "ca.pem"}
        (point(pod, "sum", version="4", **hidden) / "ca.pem").write_bytes(tls[1])
        point(pod, "sum", version="5", **hidden)
        (pod.models / "sum" / "2").mkdir()
        (pod.models / "sum" / "2" / "remote.json").write_text('{"url": "http://here", "modle": "sum"}')
        point(pod, "sum", "grpc://127.0.0.1:1", version="3")
        await pod.put("models/sum", {"version_policy": {"all": True}, "limits": {"max_restarts": 0}})
        async with pod.running():
            refused = [(await pod.instance("sum", version, FAILED)).reason for version in "125"]
            away = (await pod.instance("sum", "3", BACKOFF)).reason
            async with Batcher(await pod.instance("sum", "4")) as batcher:
                sent = await batcher.run((1, 2))

    assert refused[0] == "remote.json: model 'sum' is decoupled: one answer a request passes"
    assert refused[1].startswith('remote.json: expected {"url": …, "model": …}; ')
    assert "modle: unknown field" in refused[1]
    assert refused[2] == "ca.pem: expected a PEM file beside remote.json, found No such file or directory"
    assert output(sent, "y").tolist() == [3]
    assert away.startswith("grpc://127.0.0.1:1: model 'sum': UNAVAILABLE: failed to connect")
