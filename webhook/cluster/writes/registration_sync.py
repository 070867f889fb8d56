"""Updates Fairgate's registration on the API to match the policy. Never creates or deletes it."""

from collections.abc import Container, Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import read
from webhook.kube.objects.keys import REGISTRATION_API
from webhook.kube.registration.registration_sync import (
    PLURALS,
    aligned_with_policy,
    excluding_keys,
    excluding_labels,
    fail_open_webhooks,
    probe_path,
)

PROBE_SECONDS: Final = 10.0
"""Timeout for the API server to reach a Service: longer than its timeout of a review."""

_CONTENT: Final = ("webhooks", "spec")
"""The parts of a registered object that are not metadata."""

_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)


class SyncResult(NamedTuple):
    """The objects that a sync changed, by name, as written, and the webhooks that fail open and should not.

    `probes` are the API server's proxy paths to these, for those that are called by a Service. `excluding` are the
    labels by which others exclude namespaces from the webhooks, `narrowed` the configurations where anything excludes
    any.
    """

    changed: dict[str, _Json]
    open: tuple[str, ...]
    probes: tuple[str, ...] = ()
    excluding: tuple[str, ...] = ()
    narrowed: tuple[_Json, ...] = ()


async def sync_registration(
    connection: ApiConnection, wanted: Iterable[_Json], *, is_served: bool, paused: Container[str] = ()
) -> SyncResult:
    """Update the objects that exist to match `wanted`, except those whose names are `paused`. Raises ClusterError.

    Webhooks are set to fail closed only if `is_served`: a server answers. A write carries the resourceVersion that was
    read; after a conflict, the next call reads again.
    """
    changed: dict[str, _Json] = {}
    still: list[_Json] = []
    present: list[_Json] = []
    for each in wanted:
        found = await read(connection, _path(each), _OBJECT.decode, action=f"get {PLURALS[each['kind']]}")
        if found is None:
            continue
        present.append(found)
        name = each["metadata"]["name"]
        adjusted = found if name in paused else aligned_with_policy(found, each, is_served=is_served)
        still += fail_open_webhooks(adjusted, each)
        if adjusted != found and await _write(connection, adjusted, each):
            changed[name] = {part: adjusted[part] for part in _CONTENT if part in adjusted}
    probes = dict.fromkeys(filter(None, map(probe_path, still)))
    return SyncResult(
        changed,
        tuple(each["name"] for each in still),
        tuple(probes),
        excluding=excluding_labels(present),
        narrowed=tuple(each for each in present if excluding_keys([each])),
    )


async def why_unreachable(connection: ApiConnection, probes: Iterable[str]) -> str | None:
    """Have the API server call these paths; return why it cannot, None if it can or the request is forbidden."""
    for path in probes:
        try:
            await connection.send("GET", path, action="reach this server by its Service", seconds=PROBE_SECONDS)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                return f"the API server does not reach it: {error}"
        except ClusterError as error:
            return f"the API server does not reach it: {error}"
    return None


async def _write(connection: ApiConnection, adjusted: _Json, wanted: _Json) -> bool:
    """Return whether the write succeeded; False if the object was changed or deleted since it was read."""
    action = f"update {PLURALS[wanted['kind']]}"
    try:
        await connection.send("PUT", _path(wanted), msgspec.json.encode(adjusted), action=action)
    except ApiError as error:
        if error.is_missing or error.is_conflict:
            return False
        raise
    return True


def _path(wanted: _Json) -> str:
    return f"/apis/{REGISTRATION_API}/{PLURALS[wanted['kind']]}/{wanted['metadata']['name']}"
