"""A router with TLS on every side: who is let in, who is not and is told why, and certificates that change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.chassis.link import LinkServer
from services.cli.app import run
from tests.support.certificates import Authority, Caller
from tests.support.router_mesh import until
from tests.support.secure_mesh import PEER, SecureMesh, secure_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecureMesh]:
    async with secure_mesh(tmp_path_factory.mktemp("tls")) as mesh:
        yield mesh


@pytest.fixture(autouse=True)
def no_errors_of_its_own(mesh: SecureMesh) -> Iterator[None]:
    seen = len(mesh.router.lines)
    yield
    errors = [line for line in mesh.router.lines[seen:] if '"level": "error"' in line or not line.startswith("{")]
    assert errors == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(mesh: SecureMesh) -> str:
    return await mesh.served()


async def test_a_caller_with_a_certificate_is_served_by_both_apis(mesh: SecureMesh, model: str) -> None:
    assert await mesh.call(model, mesh.alice) == "OK"
    assert await mesh.post(model, mesh.alice) == "OK"
    assert await mesh.metric("turnout_certificate_expiry_seconds", use="listeners") == pytest.approx(172_800, abs=900)
    await mesh.router.logged("native_front_left")


async def test_callers_without_a_good_certificate_are_refused_and_told_why(mesh: SecureMesh, model: str) -> None:
    strangers = {
        "none": Caller(mesh.outside),
        "of another authority": Caller(mesh.outside, Authority("stranger").issue("alice")),
        "expired": Caller(mesh.outside, mesh.callers.issue("alice", days=(-3, -1))),
    }
    before = await mesh.metric("turnout_tls_handshakes_refused_total", use="listeners")
    for caller in strangers.values():
        assert (await mesh.call(model, caller)).startswith("UNAVAILABLE: ")
        assert (await mesh.post(model, caller)).startswith(("ClientOSError", "ServerDisconnected", "ClientConnector"))
    assert (await mesh.call(model, None)).startswith("UNAVAILABLE: ")  # in plaintext

    assert await mesh.metric("turnout_tls_handshakes_refused_total", use="listeners") >= before + len(strangers)
    await mesh.router.logged("handshake_refused", use="listeners", reason="peer did not return a certificate")


async def test_a_certificate_says_who_calls(mesh: SecureMesh) -> None:
    await mesh.etcd.put("callers/alice", b'{"certificates": [{"san": "URI:spiffe://example/alice"}]}')
    model = await mesh.served(b'{"access": {"anonymous": false}}')
    bob = Caller(mesh.outside, mesh.callers.issue("bob", "spiffe://example/bob"))

    assert await mesh.post(model, mesh.alice) == "OK"
    assert (await mesh.call(model, bob)).startswith("UNAUTHENTICATED: ")
    assert (await mesh.post(model, bob)).startswith("401: ")


async def test_a_caller_refuses_a_router_of_an_authority_that_it_does_not_believe(mesh: SecureMesh, model: str) -> None:
    mistaken = Caller(mesh.callers, mesh.alice.pair)

    assert "CERTIFICATE_VERIFY_FAILED" in await mesh.call(model, mistaken)
    assert "certificate verify failed" in (await mesh.post(model, mistaken)).lower()


async def test_old_versions_of_tls_are_refused(mesh: SecureMesh) -> None:
    context = mesh.alice.context(mesh.folder / "old")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, _, port = mesh.rest.rpartition(":")

    with pytest.raises(OSError, match="alert protocol version"):
        await asyncio.open_connection(host, int(port), ssl=context)


async def test_a_batcher_that_is_not_the_meshs_own_is_not_linked(mesh: SecureMesh) -> None:
    stranger = Authority("stranger")
    of_stranger = stranger.issue("batcher", PEER).write(mesh.folder / "of-stranger")
    nameless = mesh.inside.issue("batcher").write(mesh.folder / "nameless")
    strangers: dict[str, LinkServer] = {}
    for reason, security in {
        "unable to get local issuer certificate": mesh.security(of_stranger),
        f"Hostname mismatch, certificate is not valid for '{PEER}'.": mesh.security(nameless, peer_name=None),
        "does not speak TLS": None,
    }.items():
        strangers[reason] = (await mesh.model(security))[1].server

    for reason, server in strangers.items():
        await until(reason, lambda reason=reason, server=server: _was_refused(mesh, server.address, reason))
        assert not any(link.peer.instance for link in server.links)


async def _was_refused(mesh: SecureMesh, address: str, reason: str) -> bool:
    return any(address in each and reason in each for each in mesh.refusals("link_refused"))


async def test_a_router_without_the_meshs_certificate_is_refused_by_a_batcher(mesh: SecureMesh) -> None:
    """This batcher believes in another authority than the router's."""
    other = Authority("other")
    names = mesh.names["puppet"]
    _, puppet = await mesh.model(mesh.security(names, other.write(mesh.folder / "other.pem")))

    await until("refused", lambda: _was_refused(mesh, puppet.server.address, "unknown ca"))
    assert not any(link.peer.instance for link in puppet.server.links)


async def test_certificates_change_under_traffic_and_no_request_fails(mesh: SecureMesh, model: str) -> None:
    ended = asyncio.Event()
    outcomes: list[str] = []

    async def traffic() -> None:
        while not ended.is_set():
            outcomes.append(await mesh.call(model, mesh.alice))
            outcomes.append(await mesh.post(model, mesh.alice))

    load = asyncio.create_task(traffic())
    old = await mesh.shown(mesh.rest)
    fresh = mesh.outside.issue("router-2")
    mesh.replace("listeners", fresh)
    mesh.replace("links", mesh.inside.issue("router-2", PEER))
    for use in ("listeners", "metrics", "management"):
        await mesh.router.logged("certificate_taken", use=use, subject="CN=router-2")
    for use in ("links", "etcd"):
        await mesh.router.logged("certificate_taken", use=use, subject="CN=router-2")
    later = await mesh.served()  # etcd is followed, and a batcher is dialled, with the new ones
    count = len(outcomes)
    await until("calls went on", lambda: _is_over(outcomes, count + 4))
    ended.set()
    await load

    assert set(outcomes) == {"OK"}
    assert await mesh.call(later, mesh.alice) == "OK"
    for address in mesh.addresses.values():
        shown = await mesh.shown(address)
        assert ssl.DER_cert_to_PEM_cert(shown).encode() == fresh.certificate
        assert shown != old


async def _is_over(outcomes: list[str], count: int) -> bool:
    return len(outcomes) > count


async def test_a_bad_pair_is_refused_and_the_old_one_stays(mesh: SecureMesh, model: str) -> None:
    good = await mesh.shown(mesh.rest)
    kept = mesh.shown_pair("listeners")
    mesh.replace("listeners", kept._replace(certificate=mesh.outside.issue("router-3").certificate))
    refused = await mesh.router.logged("certificate_refused", use="listeners")

    assert refused["reason"].endswith(f"is not the key of the certificate in {mesh.names['listeners']['certificate']}")
    assert await mesh.shown(mesh.rest) == good
    assert await mesh.call(model, mesh.alice) == "OK"
    assert await mesh.metric("turnout_certificate_reloads_total", use="listeners", outcome="refused") >= 1
    mesh.replace("listeners", kept)


async def test_callers_authorities_change_too(mesh: SecureMesh, model: str) -> None:
    """What was let in before is not let in by an authority that is gone."""
    next_authority = Authority("next")
    bob = Caller(mesh.outside, next_authority.issue("bob"))
    assert (await mesh.call(model, bob)).startswith("UNAVAILABLE: ")
    next_authority.write(Path(mesh.callers_ca))
    try:

        async def is_let_in() -> bool:
            return await mesh.call(model, bob) == "OK" == await mesh.post(model, bob)

        await until("bob is let in", is_let_in)
        assert (await mesh.call(model, mesh.alice)).startswith("UNAVAILABLE: ")
        assert await mesh.post(model, mesh.alice) != "OK"
    finally:
        mesh.callers.write(Path(mesh.callers_ca))

        async def is_back() -> bool:
            return await mesh.call(model, mesh.alice) == "OK" == await mesh.post(model, mesh.alice)

        await until("alice is let in again", is_back)


async def test_the_command_line_is_such_a_caller(
    mesh: SecureMesh, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TURNOUT_TLS_CA", "TURNOUT_CERT", "TURNOUT_KEY"):
        monkeypatch.setenv(name, "")  # so that what the options leave is undone
    for name, value in mesh.etcd_environment().items():
        monkeypatch.setenv(name, value)
    alice = mesh.alice.pair
    assert alice is not None
    names = alice.write(mesh.folder / "cli")
    believed = ("--tls-ca", mesh.outside.write(mesh.folder / "outside.pem"))
    shown = ("--cert", names["certificate"], "--key", names["key"])
    ask = ("predict", model, "--input", "x=[[1.0, 1.0]]", "--json")
    over_grpc, over_rest = (*ask, "--address", mesh.grpc), (*ask, "--rest", "--address", mesh.rest)

    async def said(*words: str) -> str:
        await asyncio.to_thread(run, words)
        lines = "".join(capsys.readouterr()).splitlines()
        return "\n".join(line for line in lines if "handshake_refused" not in line)  # of batchers in this process

    for refused in (await said(*over_grpc), await said(*over_rest), await said(*believed, *over_rest)):
        assert refused.startswith("turnout: ")
        assert len(refused.splitlines()) == 1
    for served in (await said(*believed, *shown, *over_grpc), await said(*over_rest)):
        assert '"model_version": "1"' in served
    await mesh.etcd.put(f"routes/{model}", b'{"stable": "1"}')
    assert '"stable": "1"' in await said("routes", "get", model, "--json")
