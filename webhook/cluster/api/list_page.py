"""Reads one page of a list; its objects stay undecoded until their turn."""

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.wire import ListPage

_PAGE: Final = msgspec.json.Decoder(ListPage)


async def list_page(
    connection: ApiConnection, path: str, params: Mapping[str, str], *, action: str, read_seconds: float
) -> ListPage:
    """Return the page that the parameters ask for; `action` and `read_seconds` as in `get`. Raises ClusterError."""
    async with connection.get(path, params, action=action, read_seconds=read_seconds) as response:
        body = await response.read()
    try:
        return _PAGE.decode(body)
    except msgspec.DecodeError as cause:
        raise ClusterError(f"cannot {action}: the response is not a list: {cause}") from cause
