"""A client that sends requests at a fixed rate, independent of answers: latency starts when a request was due."""

import asyncio
import ssl
import statistics
import time

from serving.roles import PATH


class _Connections:
    """Keep-alive TLS connections, each for one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def open(self, count: int) -> None:
        for _ in range(count):
            self._free.put_nowait(await asyncio.open_connection(self._host, self._port, ssl=self._tls))

    async def ask(self, request: bytes) -> bool:
        """Send one request on a free connection; return whether the answer was 200."""
        reader, writer = await self._free.get()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        self._free.put_nowait((reader, writer))
        return head.startswith(b"http/1.1 200 ")

    def close(self) -> None:
        while not self._free.empty():
            self._free.get_nowait()[1].close()


async def run_client(url: str, body: bytes, *, rate: float, seconds: float, connections: int = 25) -> dict[str, float]:
    """Send requests at a rate, on as many connections as the API server keeps open."""
    host, _, port = url.split("/")[2].partition(":")
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request, kept = head.encode() + body, _Connections(host, int(port))
    await kept.open(connections)
    taken: list[float] = []
    failed = 0

    async def ask(due: float) -> None:
        nonlocal failed
        failed += not await kept.ask(request)
        taken.append(time.perf_counter() - due)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due = start + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            group.create_task(ask(due))
    kept.close()
    cuts = [1e3 * cut for cut in statistics.quantiles(taken, n=1000)]
    return {"p50_ms": cuts[499], "p99_ms": cuts[989], "p999_ms": cuts[998], "failed": failed}
