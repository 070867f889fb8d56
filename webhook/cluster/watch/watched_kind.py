"""What a watch must know of one kind of object: where it is listed, how it is decoded and what becomes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind(Generic[T]):
    """One kind of object and the translation into whatever keeps it.

    `name` is the plural that RBAC uses; `key` names an object as the API does: namespace/name, or name where there
    are no namespaces. `handle` names it as the keeper does (a pod by UID): when an object comes back under its key
    with another handle, its deletion was missed, and the old handle is removed first.

    `remove` is called for what is there and no longer kept, `lose` for what was deleted, or is missing from a list.

    `apply` keeps the object and says so; False means that there is nothing of it to keep (a pod that ended), upon
    which an earlier version is removed. It raises ValueError for an object that makes no sense: that object is
    skipped and counted, its earlier version stays. Anything else it raises is a bug and ends the watch.
    """

    name: str
    path: str
    item: type[T]
    key: Callable[[T], str]
    handle: Callable[[T], str]
    apply: Callable[[T], bool]
    remove: Callable[[str], None]
    lose: Callable[[str], None] | None = None
    """Called instead of `remove` where that makes a difference."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Added to list and watch: selectors."""
    tracks_names: bool = False
    """The names of objects that are not kept are known all the same."""
    salvage: Callable[[T | bytes], T | None] | None = None
    """Makes what can be read of an object that makes no sense, or of JSON that is none of `item`: it counts by that."""
    trim: Callable[[bytes], bytes] | None = None
    """Makes a large object small before it is decoded, for kinds that tenants write: decoding it whole takes long."""
    is_optional: bool = False
    """A server without this API (404) counts as one without such objects."""
