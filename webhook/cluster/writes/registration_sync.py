"""Fairgate's registration on the API, kept in step with the policy. Never made here, and never deleted."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.kube.objects.keys import REGISTRATION_API
from webhook.kube.registration.registration_sync import PLURALS, aligned_with_policy, fail_open_webhooks, probe_path

PROBE_SECONDS: Final = 10.0
"""How long the API server may take to reach a Service: longer than it waits for the answer to a review."""

_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)


class InStep(NamedTuple):
    """What one round changed, by the objects' names, and the webhooks that fail open and should not.

    `probes` are the paths by which the API server reaches these, as far as it does by a Service.
    """

    changed: tuple[str, ...]
    open: tuple[str, ...]
    probes: tuple[str, ...] = ()


async def keep_in_step(connection: ApiConnection, wanted: Iterable[_Json], *, is_served: bool) -> InStep:
    """Bring the objects that exist in line with these. Raises ClusterError.

    Webhooks start to fail closed only when `is_served`: a server answers. A write names the version that was read:
    where somebody else was faster, the next call looks again.
    """
    changed: list[str] = []
    still: list[_Json] = []
    for each in wanted:
        found = await _read(connection, each)
        if found is None:
            continue
        adjusted = aligned_with_policy(found, each, is_served=is_served)
        still += fail_open_webhooks(adjusted, each)
        if adjusted != found and await _write(connection, adjusted, each):
            changed.append(each["metadata"]["name"])
    probes = dict.fromkeys(filter(None, map(probe_path, still)))
    return InStep(tuple(changed), tuple(each["name"] for each in still), tuple(probes))


async def why_unreachable(connection: ApiConnection, probes: Iterable[str]) -> str | None:
    """Ask the API server to call these paths itself; say why it cannot, None where it can or may not be asked."""
    for path in probes:
        try:
            await connection.send("GET", path, action="reach this server by its Service", seconds=PROBE_SECONDS)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                return f"the API server does not reach it: {error}"
        except ClusterError as error:
            return f"the API server does not reach it: {error}"
    return None


async def _read(connection: ApiConnection, wanted: _Json) -> _Json | None:
    """Read the object of this name; None where there is none."""
    action = f"get {PLURALS[wanted['kind']]}"
    try:
        return _OBJECT.decode(await connection.send("GET", _path(wanted), action=action))
    except ApiError as error:
        if error.is_missing:
            return None
        raise
    except msgspec.DecodeError as cause:
        raise ClusterError(f"cannot {action}: the answer is no object: {cause}") from cause


async def _write(connection: ApiConnection, adjusted: _Json, wanted: _Json) -> bool:
    """Tell whether the write was taken; False where the object changed or went since it was read."""
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
