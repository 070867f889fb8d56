"""Reads as much of a kind as RBAC allows: all of it, or a few namespaces, or nothing."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from webhook.cluster.api.errors import ApiError

_NAMESPACED: Final = frozenset(
    {
        *("pods", "resourceclaims", "resourceclaimtemplates", "podgroups", "horizontalpodautoscalers"),
        *("poddisruptionbudgets", "limitranges"),
        *("namespaces", "events"),
    }
)
"""Kinds that can be read by namespace, and namespaces themselves."""


class ReadScope(NamedTuple):
    """How much of a kind was read: all of it, or these namespaces."""

    resource: str
    is_all: bool
    namespaces: tuple[str, ...] = ()


async def read_permitted(path: str, read: Callable[[str], Awaitable[None]], *, namespaces: Sequence[str]) -> ReadScope:
    """Read a kind from its path; if RBAC forbids that, from the same path in each namespace.

    Raises ClusterError for every error but a missing right. Does not retry.
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
    """Return the path of a kind in one namespace; for namespaces, that of the object."""
    head, _, resource = path.rpartition("/")
    return f"{path}/{namespace}" if resource == "namespaces" else f"{head}/namespaces/{namespace}/{resource}"
