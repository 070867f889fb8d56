"""Bodies of requests: each within size and time, all together within a share of memory, large ones one at a time."""

import asyncio
from typing import Final, NamedTuple

from aiohttp import web

from webhook.server.http.http_error import RefusedError
from webhook.server.settings import MAX_BODY_BYTES, MOST_BODIES_BYTES

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to here are never held up for others: a pod has 10 KiB."""


class Bodies:
    """Reads bodies, and keeps the sum of large ones bounded. Needs a running event loop."""

    def __init__(self) -> None:
        self._free = MOST_BODIES_BYTES
        self._given = asyncio.Event()
        self._turns = asyncio.Lock()

    async def read(self, request: web.BaseRequest, *, within_seconds: float) -> "Body":
        """Read the whole body within size and time. Whoever gets it gives it back."""
        size = request.content_length
        if request.content.is_eof() or (size is not None and size <= SMALL_BYTES):
            return Body(await _read(request, within_seconds=within_seconds), 0)
        size = MAX_BODY_BYTES if size is None else size
        if size > MAX_BODY_BYTES:
            raise too_large()
        ends = asyncio.get_running_loop().time() + within_seconds
        await self._take(size, until=ends)
        try:
            text = await _read(request, within_seconds=ends - asyncio.get_running_loop().time())
        except BaseException:
            self._add(size)
            raise
        return Body(text, size)

    async def turn(self, body: "Body") -> None:
        """Wait until a body may be looked at: between two large ones all small ones that are there have their turn."""
        if len(body.text) > SMALL_BYTES:
            async with self._turns:
                await asyncio.sleep(0)

    def give_back(self, body: "Body") -> None:
        """Let others use the memory of a body."""
        if body.held:
            self._add(body.held)

    async def _take(self, size: int, *, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                while self._free < size:
                    self._given.clear()
                    await self._given.wait()
        except TimeoutError as exc:
            text = "too many large bodies are being read at once"
            raise RefusedError(503, "TooManyBodies", text, retry_after_seconds=1) from exc
        self._free -= size

    def _add(self, size: int) -> None:
        self._free += size
        self._given.set()


class Body(NamedTuple):
    """A body, and how much memory is held for it."""

    text: bytes
    held: int


def too_large() -> RefusedError:
    """Say how large a body may be."""
    return RefusedError(413, "BodyTooLarge", f"the body is larger than {MAX_BODY_BYTES // 1024**2} MiB")


async def _read(request: web.BaseRequest, *, within_seconds: float) -> bytes:
    try:
        if request.content.is_eof():
            return await request.read()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # or aiohttp takes the final answer for already sent
        async with asyncio.timeout(within_seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as exc:
        raise too_large() from exc
    except TimeoutError as exc:
        text = f"the body did not come within {within_seconds:g} s"
        raise RefusedError(408, "BodyTimeout", text) from exc
    except (web.RequestPayloadError, ConnectionError) as exc:
        raise RefusedError(400, "BrokenBody", "the body ended early or is not framed as HTTP asks") from exc
