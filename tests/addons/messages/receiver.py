"""A receiver of messages: a real HTTPS server on loopback, which answers as a test says."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.support.pki import Authority

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def status(code: int, *headers: str) -> bytes:
    """An answer without a body."""
    return "\r\n".join((f"HTTP/1.1 {code} X", "Content-Length: 0", *headers, "", "")).encode()


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def alerts(self) -> list[Any]:
        """What each alert of the message is about, in a few words."""
        return [(each["labels"]["subject"], each["status"]) for each in self.message["alerts"]]


@dataclass
class Receiver:
    """Notes requests. `answer` writes the response, by default a success."""

    got: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    scheme: str = "https"
    answer: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]] = OK
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and answer."""
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in head[1:] if each)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.got.append(Request(head[0], headers, body))
            if isinstance(self.answer, bytes):
                writer.write(self.answer)
                await writer.drain()
            else:
                await self.answer(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    authority: Authority | None, answer: Any = OK, *, name: str = "receiver"
) -> AsyncIterator[Receiver]:
    """Serve until the end of the block; without an authority in plain HTTP."""
    receiver = Receiver(answer=answer, scheme="http" if authority is None else "https")
    context: ssl.SSLContext | None = None if authority is None else authority.server(name)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in receiver.tasks:
            task.cancel()
        await asyncio.gather(*receiver.tasks, return_exceptions=True)


def folder_of(path: Path, authority: Authority, **files: str) -> Path:
    """A folder of secrets, with the CA of the receiver as `ca.crt`."""
    path.mkdir(exist_ok=True)
    (path / "ca.crt").write_bytes(authority.certificate.read_bytes())
    for name, content in files.items():
        (path / name).write_text(content)
    return path
