"""The Events of Fairgate, read once as far as the user's rights allow: decisions for those who may not watch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from webhook.cluster.api.client import connect
from webhook.cluster.api.namespace import own_namespace
from webhook.cluster.reads.listing import list_objects
from webhook.cluster.reads.permitted_read import read_permitted
from webhook.kube.objects import keys
from webhook.kube.world_file.world_objects import WorldKind
from webhook.page.live.cluster_watch import COMPONENTS

_PATH: Final = "/api/v1/events"


async def read_events(kubeconfig: Path | None, namespaces: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the Events that may be listed, and a note about those that may not, "" for none. Raises ClusterError."""
    found: list[dict[str, Any]] = []
    asked = list(dict.fromkeys([*namespaces, await own_namespace(kubeconfig)]))
    async with await connect(kubeconfig) as connection:

        async def read(path: str) -> None:
            for component in COMPONENTS:
                kind = WorldKind("Event", keys.CORE_API, path, f"source={component}")
                found.extend(await list_objects(connection, kind))

        scope = await read_permitted(_PATH, read, namespaces=asked)
    if scope.is_all:
        return found, ""
    where = f"of {', '.join(scope.namespaces)} alone" if scope.namespaces else "not shown"
    return found, f"decisions that only Events report are {where}: you may not list other Events"
