"""Fairgate's registration on the API, kept in step with the policy. Never made here, and never deleted."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ApiError, ClusterError
from webhook.kube.in_step import PLURALS, in_step
from webhook.kube.keys import REGISTRATION_API

_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)


async def keep_in_step(connection: ApiConnection, wanted: Iterable[_Json]) -> tuple[str, ...]:
    """Bring those that are there in line with these, and name what was changed. Raises ClusterError.

    A write names the version that was read: where somebody else was faster, the next call looks again.
    """
    return tuple([each["metadata"]["name"] for each in wanted if await _adjust(connection, each)])


async def _adjust(connection: ApiConnection, wanted: _Json) -> bool:
    plural = PLURALS[wanted["kind"]]
    path = f"/apis/{REGISTRATION_API}/{plural}/{wanted['metadata']['name']}"
    try:
        body = await connection.send("GET", path, action=f"get {plural}")
        found = _OBJECT.decode(body)
        adjusted = in_step(found, wanted)
        if adjusted == found:
            return False
        await connection.send("PUT", path, msgspec.json.encode(adjusted), action=f"update {plural}")
    except ApiError as error:
        if error.is_missing or error.is_conflict:
            return False
        raise
    except msgspec.DecodeError as cause:
        raise ClusterError(f"cannot get {plural}: the answer is no object: {cause}") from cause
    return True
