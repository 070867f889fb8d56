"""A watched kind: API, struct, apply, remove, what files keep.

How a watch handles one kind of object: where to list it, how to decode it, and which calls store it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from webhook.core.model.amounts import Namespace, Uid
from webhook.core.reclaim.victims import FailureBudget, WorkloadId
from webhook.kube.kinds.job_failures import workload_id
from webhook.kube.kinds.kind_row import Failures, Row
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.ledger.team_ledger import TeamLedger, object_name
from webhook.kube.objects import keys, objects
from webhook.kube.objects.objects import without_large_parts

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


# The kinds that a world is made of, each as what to list and watch, and the calls that store it.


ALIVE: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""Finished pods stay for days and hold nothing; without them, the server reports the end of one as DELETED."""

FAILED: Final = {"fieldSelector": "status.phase=Failed"}
FAILED_PODS: Final = "failed pods"
"""The name of their kind: `pods` are those that exist."""

PodT_contra = TypeVar("PodT_contra", contravariant=True)
Translated = TypeVar("Translated")


class PodStore(Protocol[PodT_contra]):
    """Keeps the cluster's pods in the form that the caller translates them to."""

    def set_pod(self, pod: PodT_contra, /) -> None:
        """Keep a pod, by UID."""

    def remove_pod(self, uid: Uid, /) -> None:
        """Remove a pod that ended or was deleted."""


class LosePod(Protocol):
    """Receives a pod that is gone without an observed end; `is_watched` as in Lose."""

    def __call__(self, uid: Uid, *, is_watched: bool) -> None:
        """Remove the pod."""


class Metadata(Protocol):
    """What identifies an object. `namespace` is "" where there are none."""

    @property
    def name(self) -> str:
        """The object's name, which a later object may have again."""

    @property
    def namespace(self) -> str:
        """The namespace in which that name is unique."""

    @property
    def uid(self) -> str:
        """The identifier that no other object ever has."""


class Object(Protocol):
    """A decoded object, as far as it must be identified."""

    @property
    def metadata(self) -> Metadata:
        """Its identity."""


ObjectT = TypeVar("ObjectT", bound=Object)


def path_of(thing: Object) -> str:
    """Return namespace/name of an object, or its name if it is cluster-scoped."""
    return f"{thing.metadata.namespace}/{thing.metadata.name}".removeprefix("/")


def split_path(path: str) -> tuple[Namespace, str]:
    """Return the namespace and the name in the path of a namespaced object."""
    namespace, _, name = path.partition("/")
    return Namespace(namespace), name


def pod_kind(
    store: PodStore[Translated],
    translate: Callable[[objects.Pod], Translated | None],
    *,
    lose: LosePod | None = None,
    salvage: Callable[[objects.Pod | bytes], objects.Pod | None] | None = None,
    note: Callable[[objects.Pod], None] | None = None,
) -> WatchedKind[objects.Pod]:
    """Watch pods, by UID. `translate` returns None for pods that hold nothing: their earlier state is removed.

    `note` receives each pod before that, also those that ended, as far as they are watched.

    With `lose`, which is called for pods that are gone without an observed end, finished pods are watched too: kubelet
    reports the end of a pod before it releases the pod, and only a watch of finished pods shows that.
    """

    def apply(pod: objects.Pod) -> bool:
        if note is not None:
            note(pod)
        translated = translate(pod)
        if translated is not None:
            store.set_pod(translated)
        return translated is not None

    return WatchedKind(
        name="pods",
        path="/api/v1/pods",
        params={} if lose is not None else ALIVE,
        item=objects.Pod,
        trim=without_large_parts,
        key=path_of,
        handle=lambda pod: pod.metadata.uid,
        apply=apply,
        remove=lambda uid: store.remove_pod(Uid(uid)),
        lose=None if lose is None else lambda uid, *, is_watched: lose(Uid(uid), is_watched=is_watched),
        tracks_names=lose is not None,
        salvage=salvage,
    )


def failed_pod_kind(note: Callable[[objects.Pod], None]) -> WatchedKind[objects.Pod]:
    """Watch the pods that failed, for those who watch no finished pods otherwise; nothing of them is stored."""

    def apply(pod: objects.Pod) -> bool:
        note(pod)
        return False

    return WatchedKind(
        name=FAILED_PODS,
        path="/api/v1/pods",
        params=FAILED,
        item=objects.Pod,
        trim=without_large_parts,
        key=path_of,
        handle=lambda pod: pod.metadata.uid,
        apply=apply,
        remove=lambda _: None,
    )


def ledger_kind(
    keep: Callable[[TeamLedger], None], *, remove: Callable[[str], None], is_optional: bool = False
) -> WatchedKind[TeamLedger]:
    """Watch TeamLedgers, by UID; an object whose name is not its team's is ignored."""

    def apply(found: TeamLedger) -> bool:
        is_ours = found.metadata.name == object_name(found.team)
        if is_ours:
            keep(found)
        return is_ours

    return WatchedKind(
        name=keys.TEAM_LEDGERS,
        path=f"/apis/{keys.OWN_API}/{keys.TEAM_LEDGERS}",
        item=TeamLedger,
        key=path_of,
        handle=lambda found: found.metadata.uid,
        apply=apply,
        remove=remove,
        is_optional=is_optional,
    )


# The kinds that count the failures of their pods, which bounds evictions.


SetBudget = Callable[[WorkloadId, FailureBudget | None], None]


def failure_kinds(set_budget: SetBudget) -> tuple[WatchedKind[Any], ...]:
    """Watch how many failures each workload survives; those that survive any number are not kept."""
    return tuple(_kind(row, row.failures, set_budget) for row in BUILT_IN if row.failures is not None)


def _kind(row: Row, failures: Failures, set_: SetBudget) -> WatchedKind[Any]:
    def apply(found: Any) -> bool:  # noqa: ANN401 - of the type that the row names
        budget = failures.budget(found)
        if budget is not None:
            set_(WorkloadId(handle(found)), budget)
        return budget is not None

    def handle(found: Any) -> str:  # noqa: ANN401
        return workload_id(found.metadata.namespace, found.metadata.uid) or ""

    def remove(gone: str) -> None:
        set_(WorkloadId(gone), None)

    return WatchedKind(
        name=row.kind.resource,
        path=f"/apis/{row.kind.group}/{row.versions[0]}/{row.kind.resource}",
        item=failures.item,
        trim=without_large_parts,
        key=path_of,
        handle=handle,
        apply=apply,
        remove=remove,
        is_optional=True,
    )
