"""Reads as much of a cluster as the user may: everything of a kind, or what is in a few namespaces, or nothing."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from webhook.cluster.api.errors import ApiError

_NAMESPACED: Final = frozenset({"pods", "resourceclaims", "resourceclaimtemplates", "podgroups", "namespaces"})
"""Kinds of which a user may read a part: what is in a namespace, and the namespace itself."""


class ReadScope(NamedTuple):
    """How much of a kind was read: all of it, or what is in these namespaces."""

    resource: str
    is_all: bool
    namespaces: tuple[str, ...] = ()


async def read_permitted(path: str, read: Callable[[str], Awaitable[None]], *, namespaces: Sequence[str]) -> ReadScope:
    """Read a kind from its path; where RBAC forbids that, from the same path in each namespace.

    Raises ClusterError for everything but a refusal for lack of rights. Nothing is tried again.
    """
    resource = path.rpartition("/")[2]
    try:
        await read(path)
    except ApiError as error:
        if not error.is_forbidden:
            raise
    else:
        return ReadScope(resource, is_all=True)
    found = []
    for namespace in namespaces if resource in _NAMESPACED else ():
        try:
            await read(in_namespace(path, namespace))
        except ApiError as refusal:
            if not (refusal.is_forbidden or refusal.is_missing):
                raise
        else:
            found.append(namespace)
    return ReadScope(resource, is_all=False, namespaces=tuple(found))


def in_namespace(path: str, namespace: str) -> str:
    """Give the path of a kind in one namespace; of namespaces, that of the one object."""
    head, _, resource = path.rpartition("/")
    return f"{path}/{namespace}" if resource == "namespaces" else f"{head}/namespaces/{namespace}/{resource}"
