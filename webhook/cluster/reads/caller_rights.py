"""What a caller may see: TokenReview says who it is, SubjectAccessReview what that user may do."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection

MAX_TOKEN: Final = 16_384
"""Characters of a token; those of ServiceAccounts have about a thousand."""
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A user as the API server knows it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict)


async def identity_of(connection: ApiConnection, token: str, *, audience: str = "") -> CallerIdentity | None:
    """Return the user of a token; None where it is not valid, or not for the audience. Raises ClusterError."""
    spec = {"token": token, "audiences": [audience]} if audience else {"token": token}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    body = await connection.send("POST", _TOKEN_REVIEWS, msgspec.json.encode(review), action="create tokenreviews")
    status = msgspec.json.decode(body, type=_TokenReview).status
    user = status.user
    if not status.authenticated or not user.username or (audience and audience not in status.audiences):
        return None
    return CallerIdentity(user.username, user.uid, tuple(user.groups), user.extra)


async def may_list(connection: ApiConnection, identity: CallerIdentity, resource: str, namespace: str = "") -> bool:
    """Whether a user may list a kind of the core API in a namespace, by default in all. Raises ClusterError."""
    attributes = {"verb": "list", "version": "v1", "resource": resource}
    attributes |= {"namespace": namespace} if namespace else {}
    spec = {
        "user": identity.name,
        "uid": identity.uid,
        "groups": identity.groups,
        "extra": identity.extra,
        "resourceAttributes": attributes,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    body = await connection.send(
        "POST", _ACCESS_REVIEWS, msgspec.json.encode(review), action="create subjectaccessreviews"
    )
    return msgspec.json.decode(body, type=_AccessReview).status.allowed


class CallerRights:
    """Asks the API server about tokens for one audience."""

    def __init__(self, connection: ApiConnection, *, audience: str) -> None:
        self._connection = connection
        self._audience = audience

    async def why_not_all_pods(self, token: str) -> str | None:
        """Return why the bearer of a token may not see all pods; None if it may. Raises ClusterError."""
        if not token or len(token) > MAX_TOKEN:
            return f"a token for the audience {self._audience} is required"
        identity = await identity_of(self._connection, token, audience=self._audience)
        if identity is None:
            return f"the token is not valid for the audience {self._audience}"
        if not await may_list(self._connection, identity, "pods"):
            return f"{identity.name} may not list pods in all namespaces"
        return None
