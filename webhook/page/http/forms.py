"""Forms that a browser sends: bounded in size and in time."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

MOST_BYTES: Final = 512 << 10
"""Bytes of a form: a manifest of 500 kB is longer than anyone reads."""

SECONDS: Final = 20.0
"""For how long a form may arrive."""


async def read_form(request: web.Request) -> Mapping[str, str]:
    """Return the text fields of a form. Raises HTTPRequestEntityTooLarge, TimeoutError."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType
    async with asyncio.timeout(SECONDS):
        form = await request.post()
    return {name: value for name, value in form.items() if isinstance(value, str)}
