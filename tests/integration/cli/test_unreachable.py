"""What is said where a router's address leads to something that hangs up, as TLS does with who speaks none."""

import asyncio

import pytest

from services.cli.client import GrpcClient, RestClient
from services.cli.errors import CliError


@pytest.mark.parametrize("client_of", [GrpcClient, RestClient])
async def test_a_listener_that_hangs_up_may_want_tls(client_of: type[GrpcClient | RestClient]) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, client_of(f"{host}:{port}") as client:
        with pytest.raises(CliError, match=rf"what listens at {host}:{port} hung up: if it speaks TLS, say `turnout"):
            await client.inputs_of("m", "")
