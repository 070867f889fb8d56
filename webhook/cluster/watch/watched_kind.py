"""How a watch handles one kind of object: where to list it, how to decode it, and which calls store it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Lose(Protocol):
    """Receives the handle of an object that is gone; `is_watched`: nothing that it was before that was missed."""

    def __call__(self, handle: str, *, is_watched: bool) -> None:
        """Remove the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind(Generic[T]):
    """One kind of object and the calls that put it into its sink.

    `name` is the plural that RBAC uses; `key` names an object as the API does: namespace/name, or name for
    cluster-scoped kinds. `handle` names it as the sink does (a pod by UID): if an object returns under its key with
    another handle, its deletion was missed, and the old handle is removed first.

    `remove` is called for an object that exists and is no longer stored, `lose` for one that was deleted, or is
    missing from a list.

    `apply` returns whether it stored the object; False means that there is nothing to store (a pod that ended), and
    an earlier version is removed. It raises ValueError for an invalid object: that object is skipped and counted, its
    earlier version stays. Any other exception is a bug and ends the watch.
    """

    name: str
    path: str
    item: type[T]
    key: Callable[[T], str]
    handle: Callable[[T], str]
    apply: Callable[[T], bool]
    remove: Callable[[str], None]
    lose: Lose | None = None
    """Called instead of `remove`, for kinds that treat a deletion differently."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Query parameters of list and watch: selectors."""
    tracks_names: bool = False
    """Whether the names of objects that `apply` did not store are recorded."""
    salvage: Callable[[T | bytes], T | None] | None = None
    """Returns the readable part of an invalid object, or of JSON that does not decode as `item`; it is stored."""
    trim: Callable[[bytes], bytes] | None = None
    """Cuts a large object down before it is decoded, for kinds that tenants write: decoding all of it takes long."""
    is_optional: bool = False
    """Whether a server without this API (404) counts as one without such objects."""
    needs_right: bool = True
    """False: where RBAC forbids the kind, it counts as one without objects; the rest is of use without it."""
