"""Who we are to the API server."""

from typing import Final

import msgspec

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ClusterError

_PATH: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_QUESTION: Final = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'


class _UserInfo(msgspec.Struct):
    username: str


class _Status(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfSubjectReview(msgspec.Struct):
    status: _Status


async def own_username(connection: ApiConnection) -> str:
    """Ask the API server as whom it knows us: so will its admission reviews name us. Raises ClusterError."""
    action = "create selfsubjectreviews"
    body = await connection.send("POST", _PATH, _QUESTION, action=action)
    try:
        return msgspec.json.decode(body, type=_SelfSubjectReview).status.user_info.username
    except msgspec.MsgspecError as cause:
        raise ClusterError(f"cannot {action}: the answer names no user: {cause}") from cause
