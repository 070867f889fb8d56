"""The kinds that the world is made of, tied to a sink by translations that the caller brings."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from webhook.cluster.watch.feed import PodSink, Sink
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import NamespaceFacts, PriorityTriple, Resident
from webhook.kube.objects.large_objects import without_large_parts


class Metadata(Protocol):
    """What tells one object from another. `namespace` is "" where there are none."""

    @property
    def name(self) -> str:
        """The object's name, free again once it is deleted."""

    @property
    def namespace(self) -> str:
        """The namespace in which that name is unique."""

    @property
    def uid(self) -> str:
        """What no other object ever had."""


class Object(Protocol):
    """A decoded object, as far as it must be told from others."""

    @property
    def metadata(self) -> Metadata:
        """Who it is."""


ObjectT = TypeVar("ObjectT", bound=Object)


def node_kind(sink: Sink, item: type[ObjectT], to_node: Callable[[ObjectT], Node]) -> WatchedKind[ObjectT]:
    """Feed nodes, by name."""

    def apply(node: ObjectT) -> bool:
        sink.set_node(to_node(node))
        return True

    return WatchedKind(
        name="nodes",
        path="/api/v1/nodes",
        item=item,
        key=_name,
        handle=_name,
        apply=apply,
        remove=lambda name: sink.remove_node(NodeName(name)),
    )


def pod_kind(
    sink: PodSink,
    item: type[ObjectT],
    to_resident: Callable[[ObjectT], Resident | None],
    *,
    lose: Callable[[Uid], None] | None = None,
    salvage: Callable[[ObjectT | bytes], ObjectT | None] | None = None,
) -> WatchedKind[ObjectT]:
    """Feed pods, by UID. `to_resident` gives None for pods that hold nothing: their earlier state is removed.

    With `lose`, called for pods that are gone and were not seen to end, finished pods are watched, too: kubelet says
    that a pod ended before it lets go of it, and only who watches finished pods hears of that.
    """

    def apply(pod: ObjectT) -> bool:
        resident = to_resident(pod)
        if resident is not None:
            sink.set_pod(resident)
        return resident is not None

    return WatchedKind(
        name="pods",
        path="/api/v1/pods",
        # Finished pods stay for days and hold nothing; without them, the server reports the end of one as DELETED.
        params={} if lose is not None else {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
        item=item,
        trim=without_large_parts,
        key=lambda pod: f"{pod.metadata.namespace}/{pod.metadata.name}",
        handle=lambda pod: pod.metadata.uid,
        apply=apply,
        remove=lambda uid: sink.remove_pod(Uid(uid)),
        lose=None if lose is None else lambda uid: lose(Uid(uid)),
        tracks_names=lose is not None,
        salvage=salvage,
    )


def namespace_kind(
    sink: Sink, item: type[ObjectT], to_facts: Callable[[ObjectT], NamespaceFacts]
) -> WatchedKind[ObjectT]:
    """Feed namespaces, by name."""

    def apply(namespace: ObjectT) -> bool:
        sink.set_namespace(to_facts(namespace))
        return True

    return WatchedKind(
        name="namespaces",
        path="/api/v1/namespaces",
        item=item,
        key=_name,
        handle=_name,
        apply=apply,
        remove=lambda name: sink.remove_namespace(Namespace(name)),
    )


def priority_class_kind(
    sink: Sink, item: type[ObjectT], to_triple: Callable[[ObjectT], PriorityTriple]
) -> WatchedKind[ObjectT]:
    """Feed priority classes, by name."""

    def apply(priority_class: ObjectT) -> bool:
        sink.set_priority_class(to_triple(priority_class))
        return True

    return WatchedKind(
        name="priorityclasses",
        path="/apis/scheduling.k8s.io/v1/priorityclasses",
        item=item,
        key=_name,
        handle=_name,
        apply=apply,
        remove=sink.remove_priority_class,
    )


def optional_kind(
    name: str, api: str, item: type[ObjectT], *, apply: Callable[[ObjectT], bool], remove: Callable[[str], None]
) -> WatchedKind[ObjectT]:
    """Feed a kind of an API that not all servers have, by namespace/name."""
    return WatchedKind(
        name=name,
        path=f"/apis/{api}/{name}",
        item=item,
        trim=without_large_parts,
        key=_path,
        handle=_path,
        apply=apply,
        remove=remove,
        is_optional=True,
    )


def _path(thing: Object) -> str:
    return f"{thing.metadata.namespace}/{thing.metadata.name}".removeprefix("/")


def _name(thing: Object) -> str:
    return thing.metadata.name
