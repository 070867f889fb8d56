"""Lists objects once, as they are: for commands that look at a cluster and go. What follows one is watch.py."""

from typing import Any, Final, Protocol

import msgspec

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ApiError
from webhook.cluster.wire import Page

_PAGE_SIZE: Final = "500"
_READ_SECONDS: Final = 30.0
_page: Final = msgspec.json.Decoder(Page)


class Listed(Protocol):
    """What is listed: where, what a list leaves out of its items, and how they are selected."""

    @property
    def path(self) -> str:
        """Where the API lists them."""

    @property
    def api_version(self) -> str:
        """The apiVersion of each."""

    @property
    def kind(self) -> str:
        """The kind of each."""

    @property
    def selector(self) -> str:
        """A fieldSelector, or nothing."""


async def list_objects(connection: ApiConnection, listed: Listed) -> list[dict[str, Any]]:
    """List all objects of a kind, each with its apiVersion and kind; a server without this API has none.

    Raises ClusterError.
    """
    found: list[dict[str, Any]] = []
    head = {"apiVersion": listed.api_version, "kind": listed.kind}
    params = {"limit": _PAGE_SIZE} | ({"fieldSelector": listed.selector} if listed.selector else {})
    action = f"list {listed.path.rpartition('/')[2]}"
    while True:
        try:
            async with connection.get(listed.path, params, action=action, read_seconds=_READ_SECONDS) as answer:
                page = _page.decode(await answer.read())
        except ApiError as error:
            if error.is_missing:
                return found
            raise
        found += [head | msgspec.json.decode(item) for item in page.items or ()]
        if not page.metadata.continue_:
            return found
        params["continue"] = page.metadata.continue_
