"""Devices that several pods share by a claim: they become free only when all of their users go.

So users go together, like a gang. A user that stays keeps the devices, a guaranteed one as well as one that policy
protects; then the others free what they hold beside those. The same rule says what a set of victims frees, whether they
are chosen, expected to leave or evicted by an earlier plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, Protocol

from webhook.core.dra.claim_spec import ClaimKey
from webhook.core.dra.dra_claims import Instead
from webhook.core.model.demand import Demand
from webhook.core.model.names import GangId, NodeName, Uid
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.victim import Victim
from webhook.core.world.alternatives import by_room
from webhook.core.world.world import World


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which claims the pods of a world share, and what they hold without them."""

    world: World

    def others(self, uid: Uid) -> Mapping[ClaimKey, Sequence[Uid]]:
        """Return the claims of GPUs of a pod that other pods on its node use as well, with these.

        Devices are on one node: a kubelet elsewhere, or a pod that only waits for its node, uses none of them.
        """
        pod, claims = self.world.pod(uid), self.world.claims
        if pod is None or not pod.claims or pod.node is None:
            return {}
        shared = claims.shared_by(pod.uid, pod.namespace, pod.claims)
        keys = [key for key in shared if claims.has_gpus(key, self.world.policy)]
        found = {key: [other for other in claims.users.on_node(key, pod.node) if other != uid] for key in keys}
        return {key: others for key, others in found.items() if others}

    def has_room(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod is the one that takes the room of a claim on its node."""
        return self.world.claims.users.takes_room(key, uid)

    def is_charged(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod is the one that is charged for a claim."""
        return self.world.claims.users.charged_pod(key) == uid

    def holding(self, uid: Uid, instead: Instead) -> Demand:
        """Return what a pod would hold in other roles."""
        pod = self.world.pod(uid)
        assert pod is not None  # noqa: S101 - it shares a claim, so it is known
        return self.world.with_claims(pod, instead=instead).demand

    def with_alternative(self, waiting: ReclaimPod) -> ReclaimPod:
        """Return a waiting pod with the demand of the alternative of its claims that room can be made for."""
        if not waiting.pod.claims:
            return waiting
        demand = by_room(waiting.pod, waiting.constraints, self.world)
        return replace(waiting, pod=waiting.pod._replace(demand=demand))

    def nodes(self, uid: Uid) -> Iterable[NodeName]:
        """Return the nodes that the claims of a pod bind it to."""
        pod, claims = self.world.pod(uid), self.world.claims
        keys = () if pod is None else claims.shared_by(pod.uid, pod.namespace, pod.claims)
        return [node for key in keys if (node := claims.node_of(key, uid)) is not None]


NO_SHARING: Final = Sharing(World(Policy()))
"""No pod shares a claim."""


class Among(Protocol):
    """The possible victims, by UID and by gang."""

    def get(self, uid: Uid) -> Victim | None:
        """Return a victim."""
        ...

    def members(self, gang: GangId) -> Iterable[Victim]:
        """Return the victims of a gang."""
        ...


class Going:
    """Pods that go `together` after those that are `gone`, and what each frees.

    The last users of a claim free its devices. If the user that takes their room, or is charged for them, went before
    without freeing them, the first of the others does it in its place.
    """

    def __init__(self, sharing: Sharing, *, together: Iterable[Uid], gone: Set[Uid] = frozenset()) -> None:
        self._sharing = sharing
        self._gone = gone
        self._going = gone | set(together)
        self._passed_on: set[ClaimKey] = set()

    def freed(self, uid: Uid, demand: Demand) -> Demand:
        """Return what one of those that go frees; to be asked once for each of them."""
        if demand.own is None:
            return demand
        sharing, gone = self._sharing, self._gone
        without: list[ClaimKey] = []
        taking: list[ClaimKey] = []
        charged: list[ClaimKey] = []
        for key, others in sharing.others(uid).items():
            if not all(other in self._going for other in others):
                without.append(key)
            elif key not in self._passed_on and any(other in gone for other in others):
                self._passed_on.add(key)
                taking += [key] * any(other in gone and sharing.has_room(key, other) for other in others)
                charged += [key] * any(other in gone and sharing.is_charged(key, other) for other in others)
        if not (without or taking or charged):
            return demand
        return sharing.holding(uid, Instead(without, taking, charged))


def freeing(victims: Iterable[Victim], sharing: Sharing, *, gone: Set[Uid] = frozenset()) -> tuple[Victim, ...]:
    """Return victims that go together, each with what it frees; `gone` are pods that went before."""
    listed = tuple(victims)
    if all(victim.demand.own is None for victim in listed):
        return listed
    going = Going(sharing, together=[victim.uid for victim in listed], gone=gone)
    return tuple([victim._replace(demand=going.freed(victim.uid, victim.demand)) for victim in listed])


def companions(
    victims: Sequence[Victim],
    among: Among,
    sharing: Sharing,
    *,
    gone: Set[Uid],
    may_go: Callable[[Victim], bool],
) -> tuple[Victim, ...]:
    """Return victims with all that go with them: other users of their devices, and the gangs of those.

    Users of a claim are added only if every one of them may go: else the claim's devices stay, and evicting some of its
    users frees none.
    """
    found = {victim.uid: victim for victim in victims}
    left = [victim for victim in victims if victim.demand.own is not None]
    while left:
        for others in sharing.others(left.pop().uid).values():
            users = [among.get(uid) for uid in others if uid not in found and uid not in gone]
            able = [victim for victim in users if victim is not None and may_go(victim)]
            if len(able) < len(users):
                continue
            for user in able:
                gang = () if user.gang is None else filter(may_go, among.members(user.gang))
                new = [each for each in (user, *gang) if each.uid not in found]
                found.update((each.uid, each) for each in new)
                left += new
    return freeing(found.values(), sharing, gone=gone)
