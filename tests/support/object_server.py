"""An object store that speaks S3, in this process, and a relay before it that a test can cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEYS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "unknown-to-workers",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class ObjectServer:
    """`endpoint` is host:port; `environ` is what a client needs to find it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client: Any = boto3.client(
            "s3", endpoint_url=f"http://{endpoint}", region_name=KEYS["AWS_DEFAULT_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"], aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    def environ(self, endpoint: str = "") -> dict[str, str]:
        return KEYS | {"AWS_ENDPOINT_URL": f"http://{endpoint or self.endpoint}"}

    def make(self, bucket: str) -> None:
        self._client.create_bucket(Bucket=bucket)

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=content)

    def put_folder(self, bucket: str, prefix: str, folder: Path) -> None:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(bucket, f"{prefix}/{file.relative_to(folder)}", file.read_bytes())


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield ObjectServer(f"{host}:{port}")
    finally:
        server.stop()
