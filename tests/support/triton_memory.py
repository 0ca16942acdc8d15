"""tritonclient's shared memory and classes, as JSON: python -m tests.support.triton_memory http|grpc ADDRESS MODEL.

A program of its own, because two definitions of the protobuf package `inference` cannot live in one process.
"""

import json
import secrets
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

VALUES = np.array([[1.0, 4.0], [3.0, 2.0]], np.float32)


def ask(module: Any, address: str, model: str) -> dict[str, Any]:
    client = module.InferenceServerClient(address)
    mark = secrets.token_hex(4)
    given, taken = (shm.create_shared_memory_region(name, f"/{name}-{mark}", 64) for name in ("given", "taken"))
    try:
        shm.set_shared_memory_region(given, [VALUES])
        client.register_system_shared_memory("given", f"/given-{mark}", 64)
        client.register_system_shared_memory("taken", f"/taken-{mark}", 64, offset=0)
        status = client.get_system_shared_memory_status()
        there = module.InferInput("x", [2, 2], "FP32")
        there.set_shared_memory("given", VALUES.nbytes)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("taken", VALUES.nbytes, offset=16)
        client.infer(model, [there], outputs=[wanted])
        small = module.InferRequestedOutput("y")
        small.set_shared_memory("taken", 4)
        classes = client.infer(model, [there], outputs=[module.InferRequestedOutput("y", class_count=1)])
        refusals = {
            "too small": refused(lambda: client.infer(model, [there], outputs=[small])),
            "twice": refused(lambda: client.register_system_shared_memory("given", f"/given-{mark}", 64)),
            "path": refused(lambda: client.register_system_shared_memory("other", "/../../etc/passwd", 8)),
            "too large": refused(lambda: client.register_system_shared_memory("other", f"/given-{mark}", 1 << 20)),
            "cuda": refused(lambda: client.register_cuda_shared_memory("other", b"", 0, 64)),
        }
        client.unregister_system_shared_memory("given")
        refusals["gone"] = refused(lambda: client.infer(model, [there]))
        refusals["no status"] = refused(lambda: client.get_system_shared_memory_status("given"))
        client.unregister_system_shared_memory()
        return {
            "names": sorted([each["name"] for each in status] if isinstance(status, list) else [*status.regions]),
            "y": shm.get_contents_as_numpy(taken, np.float32, [2, 2], offset=16).tolist(),
            "classes": [each.decode() for each in classes.as_numpy("y").ravel()],
            "refusals": refusals,
        }
    finally:
        shm.destroy_shared_memory_region(given)
        shm.destroy_shared_memory_region(taken)


def refused(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except InferenceServerException as error:
        return [str(error.status()), str(error.message())]
    return []


if __name__ == "__main__":
    protocol, address, model = sys.argv[1:]
    if protocol == "http":
        import tritonclient.http as triton
    else:
        import tritonclient.grpc as triton
    print(json.dumps(ask(triton, address, model)))  # noqa: T201 - the answer
