"""A router with TLS on every side, as a real process: its etcd, a batcher, callers, and their certificates."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from prometheus_client import CollectorRegistry

from inference import grpc_service_pb2 as pb
from services.chassis.etcd import EtcdClient, EtcdProcess, TlsFiles
from services.chassis.tls import Certificates, LinkSecurity, LinkTls
from tests.support.certificates import Authority, Caller, Pair
from tests.support.puppets import PuppetBatcher
from tests.support.router_mesh import MODEL_INFER, TIMEOUT_S, infer_request, rest_request, until
from tests.support.service_process import ServiceProcess, started

PEER = "mesh.example"
LISTENERS = ("grpc", "rest", "metrics", "management", "management_grpc", "tfs-grpc", "tfs-rest")


class SecureMesh:
    """`inside` signs for links and etcd, `outside` for listeners, `callers` for who may call."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.inside, self.outside, self.callers = (Authority(name) for name in ("inside", "outside", "callers"))
        self.alice = Caller(self.outside, self.callers.issue("alice", "spiffe://example/alice"))
        self.names = {
            "listeners": self.outside.issue("router").write(folder / "listeners"),
            "links": self.inside.issue("router", PEER).write(folder / "links"),
            "etcd": self.inside.issue("etcd").write(folder / "etcd-pair"),
            "puppet": self.inside.issue("batcher", PEER).write(folder / "puppet"),
        }
        self.inside_ca = self.inside.write(folder / "inside.pem")
        self.callers_ca = self.callers.write(folder / "callers.pem")
        self._stack = stack
        self._contexts = 0
        self.etcd: EtcdClient
        self.router: ServiceProcess

    def settings(self, etcd: EtcdProcess) -> dict[str, str]:
        listeners, links = self.names["listeners"], self.names["links"]
        chosen = {
            "CERTIFICATE_CHECK_S": "0.1",
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_TLS_CA": self.inside_ca,
            "DATA_DIR": str(self.folder / "data"),
            "TLS_CLIENT_CA": self.callers_ca,
            "LINK_TLS_CA": self.inside_ca,
            "LINK_TLS_PEER_NAME": PEER,
            **{f"{name.replace('-', '_').upper()}_ADDRESS": "127.0.0.1:0" for name in LISTENERS},
        }
        for name in ("certificate", "key"):
            chosen |= {f"{group}_{name.upper()}": listeners[name] for group in ("TLS", "METRICS_TLS")}
            chosen |= {f"{group}_{name.upper()}": links[name] for group in ("LINK_TLS", "ETCD_TLS")}
        return {f"TURNOUT_ROUTER_{name}": value for name, value in chosen.items()}

    async def start(self) -> None:
        names = self.names["etcd"]
        files = TlsFiles(Path(self.inside_ca), Path(names["certificate"]), Path(names["key"]))
        etcd = await self._stack.enter_async_context(EtcdProcess(self.folder / "etcd", fsync=False, tls=files))
        self.etcd = EtcdClient([etcd.endpoint], tls=files)
        self.etcd_endpoint = etcd.endpoint
        self._stack.push_async_callback(self.etcd.close)
        self.router = await self._stack.enter_async_context(started("services.router", self.settings(etcd)))
        self.addresses = {name: await self.router.address(name) for name in LISTENERS}
        self.grpc, self.rest, self.metrics = (self.addresses[name] for name in ("grpc", "rest", "metrics"))

    def security(self, pair: Mapping[str, str], ca: str = "", peer_name: str | None = PEER) -> LinkSecurity:
        """Of a neighbour's links."""
        tls = LinkTls.model_validate({**pair, "ca": ca or self.inside_ca, "peer_name": peer_name})
        made = Certificates(CollectorRegistry()).links(tls)
        assert made is not None
        return made

    async def model(self, security: LinkSecurity | None, spec: bytes = b"{}") -> tuple[str, PuppetBatcher]:
        """A model that a batcher of its own serves; the router may or may not reach it."""
        name, puppet = f"m-{secrets.token_hex(4)}", PuppetBatcher(f"pod-{secrets.token_hex(3)}")
        puppet.security = security
        await self._stack.enter_async_context(puppet)
        await self.etcd.put(f"models/{name}", spec)
        await puppet.serve(self.etcd, name, "1")
        return name, puppet

    async def served(self, spec: bytes = b"{}") -> str:
        """A model that answers."""
        name, _ = await self.model(self.security(self.names["puppet"]), spec)

        async def answers() -> bool:
            return await self.call(name, self.alice) == "OK"

        await until("the model answers", answers)
        return name

    async def call(self, model: str, caller: Caller | None, ca: Authority | None = None) -> str:
        """ModelInfer on a connection of its own: OK, or how it failed."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        if caller is None:
            channel = grpc.aio.insecure_channel(self.grpc, options=options)
        else:
            channel = grpc.aio.secure_channel(self.grpc, caller.credentials(), options=options)
        async with channel:
            try:
                call: Any = channel.unary_unary(MODEL_INFER)
                answer = await call(infer_request(model, 1.0).SerializeToString(), timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            return "OK" if pb.ModelInferResponse.FromString(answer).model_name == model else "another model"

    async def post(self, model: str, caller: Caller) -> str:
        """The same over REST: OK, or how it failed."""
        url = f"https://{self.rest}/v2/models/{model}/infer"
        try:
            async with self.session(caller) as session, session.post(url, json=rest_request(1.0)) as answer:
                return "OK" if answer.status == 200 else f"{answer.status}: {await answer.text()}"
        except aiohttp.ClientError as error:
            return f"{type(error).__name__}: {error}"

    def session(self, caller: Caller) -> aiohttp.ClientSession:
        self._contexts += 1
        context = caller.context(self.folder / f"context-{self._contexts}")
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of that name with those labels, over TLS."""
        url = f"https://{self.metrics}/metrics"
        async with self.session(Caller(self.outside)) as session, session.get(url) as answer:
            lines = (await answer.text()).splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line for line in lines if line.split("{")[0] == name and all(each in line for each in wanted)]
        return sum(float(line.rpartition(" ")[2]) for line in series)

    async def shown(self, address: str) -> bytes:
        """The certificate that a listener shows now, in DER."""
        host, _, port = address.rpartition(":")
        context = self.alice.context(self.folder / "shown")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        del reader
        return found

    def shown_pair(self, use: str) -> Pair:
        return Pair(*(Path(self.names[use][name]).read_bytes() for name in Pair._fields))

    def replace(self, use: str, pair: Pair) -> None:
        pair.write(Path(self.names[use]["certificate"]).parent)

    def etcd_environment(self) -> dict[str, str]:
        """What the command line is told of etcd."""
        pair = {f"ETCD_TLS_{name.upper()}": path for name, path in self.names["etcd"].items()}
        return {"ETCD_ENDPOINTS": self.etcd_endpoint, "ETCD_TLS_CA": self.inside_ca, **pair}

    def refusals(self, event: str) -> list[str]:
        return [json.dumps(each) for each in self.router.events() if each["event"] == event]


@asynccontextmanager
async def secure_mesh(folder: Path) -> AsyncIterator[SecureMesh]:
    async with AsyncExitStack() as stack:
        mesh = SecureMesh(folder, stack)
        await mesh.start()
        yield mesh
