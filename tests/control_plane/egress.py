"""What kube-proxy is to an API server: takes it from a Service's address to a process of this machine.

The API server asks for each connection by HTTP CONNECT on a socket (its EgressSelectorConfiguration says so), so that
webhooks are called by their Service, with its name in their certificate, as in a real cluster. Which addresses lead
where stands in a file that is read for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.control_plane.processes import Processes

NAME = "egress"
ROOT = Path(__file__).parents[2]
HEAD_LIMIT = 4096


def configuration(folder: Path) -> str:
    """The API server's EgressSelectorConfiguration, whose path is given by --egress-selector-config-file."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(_socket(folder))}}}
    return json.dumps(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
    )


def lead(processes: Processes, routes: Mapping[str, Sequence[int]]) -> None:
    """Have each ADDRESS:PORT lead to one of some loopback ports from now on, and refuse all others."""
    fresh = processes.folder / "routes.next"
    fresh.write_text(json.dumps(dict(routes)))
    os.replace(fresh, _routes(processes.folder))
    if not processes.is_running(NAME):
        processes.start(NAME, [sys.executable, "-m", "tests.control_plane.egress", processes.folder], cwd=ROOT)


def _socket(folder: Path) -> Path:
    return folder / "egress.sock"


def _routes(folder: Path) -> Path:
    return folder / "routes.json"


async def connect(folder: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one CONNECT, and carry bytes both ways until either side ends."""
    head = await reader.readuntil(b"\r\n\r\n")
    target = head.split(b" ", 2)[1].decode()
    ports = json.loads(_routes(folder).read_text()).get(target, [])
    for port in random.sample(ports, len(ports)):
        with contextlib.suppress(OSError):
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_carry(reader, back_writer), _carry(back_reader, writer))
            return
    writer.write(f"HTTP/1.1 502 nothing serves {target}\r\n\r\n".encode())
    writer.close()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(2**16):
            target.write(piece)
            await target.drain()
    target.close()


async def serve(folder: Path) -> None:
    """Serve until cancelled."""
    _socket(folder).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(
        lambda *streams: connect(folder, *streams), path=_socket(folder), limit=HEAD_LIMIT
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
