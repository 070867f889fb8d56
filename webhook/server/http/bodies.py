"""Request bodies: limits on size and time of each, on the memory of all, and large ones are processed one by one."""

import asyncio
from typing import Final, NamedTuple

from aiohttp import web

from webhook.server.http.http_error import HttpError
from webhook.server.settings import MAX_BODIES_BYTES, MAX_BODY_BYTES

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this size never wait for others: a pod has 10 KiB."""


class BodyReader:
    """Reads bodies, and bounds the total size of large ones. Needs a running event loop."""

    def __init__(self) -> None:
        self._free = MAX_BODIES_BYTES
        self._has_released = asyncio.Event()
        self._turn = asyncio.Lock()

    async def read(self, request: web.BaseRequest, *, within_seconds: float) -> "Body":
        """Read the whole body within size and time. The caller must `release` it."""
        size = request.content_length
        if request.content.is_eof() or (size is not None and size <= SMALL_BYTES):
            return Body(await _read(request, within_seconds=within_seconds), 0)
        size = MAX_BODY_BYTES if size is None else size
        if size > MAX_BODY_BYTES:
            raise too_large()
        ends = asyncio.get_running_loop().time() + within_seconds
        await self._reserve(size, until=ends)
        try:
            text = await _read(request, within_seconds=ends - asyncio.get_running_loop().time())
        except BaseException:
            self._add(size)
            raise
        return Body(text, size)

    async def wait_turn(self) -> None:
        """Wait until a body that takes long may be processed: between two of them all others that wait go first."""
        async with self._turn:
            await asyncio.sleep(0)

    def release(self, body: "Body") -> None:
        """Release the memory of a body for others."""
        if body.reserved_bytes:
            self._add(body.reserved_bytes)

    async def _reserve(self, size: int, *, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                while self._free < size:
                    self._has_released.clear()
                    await self._has_released.wait()
        except TimeoutError as exc:
            text = "too many large bodies are being read at once"
            raise HttpError(503, "TooManyBodies", text, retry_after_seconds=1) from exc
        self._free -= size

    def _add(self, size: int) -> None:
        self._free += size
        self._has_released.set()


class Body(NamedTuple):
    """A body, and the memory that is reserved for it."""

    text: bytes
    reserved_bytes: int

    @property
    def is_large(self) -> bool:
        """Whether it takes turns with others."""
        return len(self.text) > SMALL_BYTES


def too_large() -> HttpError:
    """Return the error for a body over the limit."""
    return HttpError(413, "BodyTooLarge", f"the body is larger than {MAX_BODY_BYTES // 1024**2} MiB")


async def _read(request: web.BaseRequest, *, within_seconds: float) -> bytes:
    try:
        if request.content.is_eof():
            return await _whole(request)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(within_seconds):
            return await _whole(request)
    except TimeoutError as exc:
        text = f"the body was not received within {within_seconds:g} s"
        raise HttpError(408, "BodyTimeout", text) from exc
    except (web.RequestPayloadError, ConnectionError) as exc:
        raise HttpError(400, "BrokenBody", "the body ended early or its HTTP framing is invalid") from exc


async def _whole(request: web.BaseRequest) -> bytes:
    """Return the whole body. aiohttp's own `read` has a limit of 1 MiB that only a `web.Application` changes."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise too_large()
    return bytes(body)
