"""The stream of server-sent events of one open page."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from webhook.cluster.api.errors import ClusterError
from webhook.page.access.sign_ins import TooManySignInsError
from webhook.page.live.hub import Client, Hub, TooManyError
from webhook.page.views.viewer import Viewer

KEEP_ALIVE_SECONDS: Final = 15.0
"""After so long without a message one is sent, and the viewer's rights are looked at again."""

SEND_SECONDS: Final = 20.0
"""A message that a client does not take within so long ends its stream."""

_RETRY: Final = b"retry: 3000\n\n"
_STILL: Final = b"event: still\ndata: {}\n\n"
"""An event and not a comment: a browser whose connection died without a word misses it, and connects again."""


async def stream_to(
    request: web.Request,
    hub: Hub,
    viewer: Viewer,
    *,
    is_still_allowed: Callable[[], Awaitable[bool]],
) -> web.StreamResponse:
    """Send events until the page is closed, is too slow, or its viewer's rights changed."""
    try:
        client = hub.join(viewer)
    except TooManyError:
        text = "too many pages are open: close some\n"
        return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text, headers={"Retry-After": "10"})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    try:
        await response.prepare(request)
        await response.write(_RETRY + hub.hello())
        await _send(response, client, is_still_allowed)
    except (ConnectionError, TimeoutError, ClusterError, TooManySignInsError):
        pass  # the browser connects again
    finally:
        hub.leave(client)
    return response


async def _send(response: web.StreamResponse, client: Client, is_still_allowed: Callable[[], Awaitable[bool]]) -> None:
    checked = asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                message = await client.next()
        except TimeoutError:
            message = _STILL
        if not message:
            return
        now = asyncio.get_running_loop().time()
        if now - checked >= KEEP_ALIVE_SECONDS:
            checked = now
            if not await is_still_allowed():
                return
        async with asyncio.timeout(SEND_SECONDS):
            await response.write(message)
