"""Which pods use which claim: who is charged for it, and who takes the room of its devices on each node.

The first pod is charged. Devices are on one node, where one user takes their room: the charged pod if it is there,
else the first one there. While no user has a node, the charged pod asks for the room. Every change costs the same
however many pods use a claim: a tenant may create thousands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from webhook.core.dra.claim_spec import ClaimKey
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.names import Namespace, NodeName, Uid

_SHARED_KINDS: Final = frozenset({"claim", "entry"})
"""Kinds of keys that stand for devices; templates and groups are only read."""


@dataclass(slots=True)
class _Users:
    """The users of one claim in the order in which they came, and by node (None: without one)."""

    nodes: dict[Uid, NodeName | None] = field(default_factory=dict)
    on: dict[NodeName | None, dict[Uid, None]] = field(default_factory=dict)
    there: dict[NodeName, dict[Uid, None]] = field(default_factory=dict)  # not only expected there

    @property
    def charged_pod(self) -> Uid | None:
        return next(iter(self.nodes), None)

    @property
    def has_node(self) -> bool:
        return len(self.on) > (None in self.on)

    def next_node(self, uid: Uid) -> NodeName | None:
        """Return the node of the pod that is charged once a user has left."""
        return next((node for user, node in islice(self.nodes.items(), 2) if user != uid), None)

    def holder(self, node: NodeName | None) -> Uid | None:
        """Return the user that takes the room on a node; for None the one that asks for it, if none has a node."""
        if node is None and self.has_node:
            return None
        charged = self.charged_pod
        if charged is not None and self.nodes[charged] == node:
            return charged
        return next(iter(self.on.get(node, ())), None)

    def roles(self, nodes: Iterable[NodeName | None]) -> set[tuple[Uid | None, NodeName | None, bool]]:
        """Return the charged pod, and who takes or asks for room on these nodes and those of the first two users."""
        where = {*nodes, None, *(self.nodes[uid] for uid in islice(self.nodes, 2))}
        return {(self.charged_pod, None, True), *((self.holder(node), node, False) for node in where)}

    def set_there(self, uid: Uid, node: NodeName | None) -> None:
        """Note on which node a user is, not only expected; None for no node."""
        before = self.nodes.get(uid)
        if before is not None and before != node and uid in self.there.get(before, ()):
            del self.there[before][uid]
            if not self.there[before]:
                del self.there[before]
        if node is not None:
            self.there.setdefault(node, {})[uid] = None

    def set(self, uid: Uid, node: NodeName | None) -> None:
        if uid in self.nodes and self.nodes[uid] != node:
            self._leave_node(uid)
        self.nodes[uid] = node
        self.on.setdefault(node, {})[uid] = None

    def remove(self, uid: Uid) -> None:
        self.set_there(uid, None)
        self._leave_node(uid)
        del self.nodes[uid]

    def _leave_node(self, uid: Uid) -> None:
        node = self.nodes[uid]
        del self.on[node][uid]
        if not self.on[node]:
            del self.on[node]


class ClaimUsers:
    """The pods that use claims, and the keys of each."""

    def __init__(self) -> None:
        self._users: dict[ClaimKey, _Users] = {}
        self._keys: dict[Uid, tuple[ClaimKey, ...]] = {}

    def __contains__(self, key: ClaimKey) -> bool:
        return key in self._users

    @property
    def is_empty(self) -> bool:
        """Whether no pod uses a claim."""
        return not self._users

    def pods(self) -> tuple[Uid, ...]:
        """Return all pods, those without claims included."""
        return tuple(self._keys)

    def keys_of(self, uid: Uid) -> tuple[ClaimKey, ...]:
        """Return what a pod uses."""
        return self._keys.get(uid, ())

    def of(self, key: ClaimKey) -> tuple[Uid, ...]:
        """Return the users of a key, in the order in which they came."""
        users = self._users.get(key)
        return () if users is None else tuple(users.nodes)

    def on_nodes(self, key: ClaimKey) -> list[Uid]:
        """Return the users that are on a node, not only expected there."""
        users = self._users.get(key)
        return [] if users is None else [uid for there in users.there.values() for uid in there]

    def on_node(self, key: ClaimKey, node: NodeName) -> Iterable[Uid]:
        """Return the users that are on this node, not only expected there."""
        users = self._users.get(key)
        return () if users is None else users.there.get(node, ())

    def replace(self, uid: Uid, key: ClaimKey, new: ClaimKey) -> None:
        """Have a pod use another key in place of one that it uses."""
        node = self._users[key].nodes[uid]
        self.join(uid, tuple([new if each == key else each for each in self._keys[uid]]), node)

    def charged_pod(self, key: ClaimKey) -> Uid | None:
        """Return the pod charged for a claim, if there is one."""
        users = self._users.get(key)
        return None if users is None else users.charged_pod

    def takes_room(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod takes, or asks for, the room of a claim's devices; a new user does if no other has a node."""
        users = self._users.get(key)
        if users is None or uid not in users.nodes:
            return users is None or not users.has_node
        return users.holder(users.nodes[uid]) == uid

    def node(self, key: ClaimKey, uid: Uid) -> NodeName | None:
        """Return the node where others than this pod use a claim: of the charged pod, or the first; None without."""
        users = self._users.get(key)
        if users is None or users.charged_pod is None:
            return None
        if users.charged_pod != uid and (node := users.nodes[users.charged_pod]) is not None:
            return node
        used = (node for node, there in users.on.items() if any(other != uid for other in there))
        return next(filter(None, used), None)

    def join(
        self, uid: Uid, keys: tuple[ClaimKey, ...], node: NodeName | None, *, is_expected: bool = False
    ) -> set[Uid]:
        """Set what a pod uses, and its node; return the others that are charged, or take room, for something else now.

        `is_expected`: it is not on that node yet.
        """
        changed: set[Uid] = set()
        before, self._keys[uid] = self._keys.get(uid, ()), keys
        for key in keys:
            users = self._users.setdefault(key, _Users())
            users.set_there(uid, None if is_expected else node)
            if uid in users.nodes and users.nodes[uid] == node:
                continue
            where = (node, users.nodes.get(uid))
            roles = users.roles(where)
            users.set(uid, node)
            changed |= _changed(key, roles, users.roles(where))
        for key in before:
            if key not in keys:
                changed |= self._remove(uid, key)
        changed.discard(uid)
        return changed

    def leave(self, uid: Uid) -> set[Uid]:
        """Remove a pod; return the pods that are charged, or take room, for something else now."""
        changed: set[Uid] = set()
        for key in self._keys.pop(uid, ()):
            changed |= self._remove(uid, key)
        changed.discard(uid)
        return changed

    def _remove(self, uid: Uid, key: ClaimKey) -> set[Uid]:
        users = self._users[key]
        where = (users.nodes[uid], users.next_node(uid))
        roles = users.roles(where)
        users.remove(uid)
        if not users.nodes:
            del self._users[key]
            return set()
        return _changed(key, roles, users.roles(where))


_Roles = set[tuple[Uid | None, NodeName | None, bool]]


def _changed(key: ClaimKey, before: _Roles, after: _Roles) -> set[Uid]:
    """Return the pods whose role is another one."""
    if key.kind not in _SHARED_KINDS:
        return set()
    return {uid for uid, _, _ in before ^ after if uid is not None}


def group_key(namespace: Namespace, ref: ClaimRef) -> ClaimKey:
    """Return the key of the claim that the pods of a group share for an entry."""
    return ClaimKey("entry", namespace, f"{ref.group}/{ref.entry}/{ref.template}")


def named_claims(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """Return the claims that a pod names itself: they exist independent of the pod."""
    return (ClaimKey("claim", namespace, ref.claim) for ref in refs if ref.claim and not ref.template)


def keys_of(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """Return all objects that a pod's demand depends on."""
    for ref in refs:
        if ref.group:
            yield ClaimKey("group", namespace, ref.group)
            yield group_key(namespace, ref)
        if ref.claim:
            yield ClaimKey("claim", namespace, ref.claim)
        if ref.template:
            yield ClaimKey("template", namespace, ref.template)
