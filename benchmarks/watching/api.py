"""The API server of watch.py: nodes and pods as prepared bytes, in pages or as a stream, and changes on demand.

It runs in a separate process, so that its cost is not measured. `GET /control?rate=2000&relist=0.5` starts changes of
pods at a rate (0: none, -1: as fast as the client reads) and ends every watch with 410 after this many seconds; `shy`
lowers its priority on its core.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from watching.inputs import Stamp, Template, pod
from watching.inputs import nodes as list_nodes

Query = dict[str, str]
BLOCK = 65_536
TICK_SECONDS = 0.005
LIFE = ("DELETED", "ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED")
"""A pod is deleted and another created under its name, bound, and its status changes three times."""

_NAMESPACE = b'{"metadata": {"name": "vision", "uid": "1", "resourceVersion": "1"}}'


def chunk(line: bytes) -> bytes:
    """Frame a line as the API server does: each event is a separate chunk."""
    return b"%x\r\n%b\r\n" % (len(line), line)


def event(kind: str, body: bytes) -> bytes:
    """Return one event of a watch."""
    return chunk(b'{"type":"%b","object":%b}\n' % (kind.encode(), body))


@dataclass
class Api:
    """The content it serves, and its behavior."""

    pods: list[bytes]
    nodes: list[bytes]
    template: Template
    streams_lists: bool
    rate: float = 0.0
    relist: float = 0.0
    version: int = 1_000_000
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, path: str) -> list[bytes]:
        """Return the objects under a path."""
        known = {"/api/v1/pods": self.pods, "/api/v1/nodes": self.nodes, "/api/v1/namespaces": [_NAMESPACE]}
        return known.get(path, [])

    def control(self, query: Query) -> None:
        """Set the behavior."""
        self.rate, self.relist = float(query.get("rate", 0)), float(query.get("relist", 0))
        # Shy: it runs only when its core is idle, since the client that measures latency is on it, too.
        os.sched_setscheduler(0, os.SCHED_IDLE if "shy" in query else os.SCHED_OTHER, os.sched_param(0))
        self.changed.set()
        self.changed = asyncio.Event()

    def page(self, path: str, query: Query) -> bytes:
        """Return one page of a list; the token is the start of the next one."""
        everything, start = self.of(path), int(query.get("continue", 0))
        end = start + int(query.get("limit", len(everything) or 1))
        meta = {"resourceVersion": str(self.version)} | ({"continue": str(end)} if end < len(everything) else {})
        kind = "PodList" if path.endswith("pods") else "List"
        head = json.dumps({"kind": kind, "apiVersion": "v1", "metadata": meta}).encode()
        return head[:-1] + b',"items":[' + b",".join(everything[start:end]) + b"]}"

    def initial(self, path: str) -> Iterator[bytes]:
        """Return all objects as events, then the bookmark that ends them."""
        for body in self.of(path):
            yield event("ADDED", body)
        notes = {"k8s.io/initial-events-end": "true"}
        yield event(
            "BOOKMARK", json.dumps({"metadata": {"resourceVersion": str(self.version), "annotations": notes}}).encode()
        )

    def change(self) -> bytes:
        """Return the next event of the pods."""
        self.version += 1
        life, step = divmod(self.version, len(LIFE))
        index = life * 7919 % len(self.pods)
        generation = life - (step == 0)
        return event(
            LIFE[step],
            self.template.filled(index, Stamp(generation=generation, version=self.version, is_bound=step > 1)),
        )

    async def changes(self, path: str) -> AsyncIterator[bytes]:
        """Write changes at the requested rate; end with 410 when requested."""
        opened, sent_until = time.monotonic(), time.monotonic()
        while not self.relist or time.monotonic() - opened < self.relist:
            now = time.monotonic()
            if not path.endswith("/pods") or not self.rate:
                sent_until = now
                waited = self.changed.wait()
                try:
                    await asyncio.wait_for(waited, min(self.relist, 0.05) if self.relist else 3600)
                except TimeoutError:
                    continue
                opened = time.monotonic()
            elif self.rate < 0:
                yield b"".join(self.change() for _ in range(16))
            else:
                due = int((now - sent_until) * self.rate)
                sent_until += due / self.rate
                yield b"".join(self.change() for _ in range(due))
                await asyncio.sleep(TICK_SECONDS)
        yield event("ERROR", b'{"kind":"Status","code":410,"message":"too old resource version"}')

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                url = urlsplit(head.split(b" ", 2)[1].decode())
                query = dict(parse_qsl(url.query))
                if "sendInitialEvents" in query and not self.streams_lists:
                    writer.write(b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 0\r\n\r\n")
                    continue
                if "watch" in query:
                    await self._watch(url.path, query, writer)
                    continue
                if url.path == "/control":
                    self.control(query)
                body = self.page(url.path, query)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(body))
                writer.write(body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _watch(self, path: str, query: Query, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if "sendInitialEvents" in query:
            block = bytearray()
            for line in self.initial(path):
                block += line
                if len(block) >= BLOCK:
                    writer.write(bytes(block))
                    block.clear()
                    await writer.drain()
            writer.write(bytes(block))
        async for lines in self.changes(path):
            writer.write(lines)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def run_api(*, nodes: int, pods: int, streams_lists: bool) -> None:
    """Serve until killed; print the URL."""
    template = Template.of(pod(), nodes=nodes)
    first = Stamp(generation=0, version=1_000_000, is_bound=True)
    api = Api(
        pods=[template.filled(index, first) for index in range(pods)],
        nodes=list_nodes(nodes),
        template=template,
        streams_lists=streams_lists,
    )
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=1 << 20)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sizes = {"pod_bytes": len(api.pods[0]), "node_bytes": len(api.nodes[0])}
    print(json.dumps({"url": url} | sizes), file=sys.stderr, flush=True)
    await server.serve_forever()
