"""One domain for the members of a gang, such as one rack: what the nodes could hold, and where later members go."""

from collections.abc import Hashable, Iterable, Sequence

from webhook.core.admission.pools import EVERY_TAINT, allowed_pools, grows
from webhook.core.model.domain_request import ANYWHERE, DomainPlace, DomainRequest, asked_levels, levels_to_try
from webhook.core.model.gang import Gang
from webhook.core.model.names import TeamName
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Mode
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import Operator, Requirement
from webhook.core.model.statement import Statement
from webhook.core.placement.domain_search import DomainRoom, EmptyRoom, EqualPods, cluster_room, domain_of, domain_rooms
from webhook.core.world.world import World


def request_of(gang: Gang, world: World) -> DomainRequest | None:
    """Return the domain that a gang asks for: by its pods, or by its PodGroup."""
    return gang.domain if gang.domain is not None else world.group_domains.get(gang.id)


def kinds_of(pods: Iterable[Pod], team: TeamName, world: World, *, ignores_taints: bool = False) -> list[EqualPods]:
    """Return equal pods of a gang together, with the slots that they may use by their pools and their own rules."""
    alike: dict[Hashable, tuple[Pod, int]] = {}
    for pod in pods:
        labels = tuple(sorted(pod.labels.items())) if world.pools.selective else None
        key = (pod.demand, pod.constraints, pod.pool, pod.requires, pod.claims, labels)
        first, number = alike.get(key, (pod, 0))
        alike[key] = first, number + 1
    return [_kind(pod, number, team, world, ignores_taints=ignores_taints) for pod, number in alike.values()]


def _kind(pod: Pod, number: int, team: TeamName, world: World, *, ignores_taints: bool) -> EqualPods:
    slots, demand = 0, pod.demand
    if pod.needs_resolution:
        demand = world.with_claims(pod).demand
    for pool in allowed_pools(pod, team, world).allowed:
        joined = world.pools.joined(pod.constraints, pool)
        slots |= world.fleet.matching(joined.joined(tolerations=EVERY_TAINT) if ignores_taints else joined)
    return EqualPods(demand, number, slots)


def domain_refusal(pods: Sequence[Pod], request: DomainRequest | None, team: TeamName, world: World) -> Reason | None:
    """Return why no domain could hold these pods, even when empty, where one is required; None if that is not certain.

    It is not certain where an autoscaler adds nodes, no node is known that they may use, one left lately, or several
    pods share the devices of a claim. Callers name the gang or workload before the text.
    """
    if request is None or not request.is_required:
        return None
    if len(pods) > 1 and any(_shares_devices(pod, world) for pod in pods):
        return None
    kinds = kinds_of(pods, team, world, ignores_taints=True)
    fleet = world.fleet
    if len(pods) == 1 and fleet.could_hold(kinds[0].demand, kinds[0].slots & fleet.domains(request.key).bits):
        return None  # without a pass over the nodes
    if not all(kind.slots for kind in kinds) or any(_may_change(pod, request.key, team, world) for pod in pods):
        return None
    (level,) = asked_levels(request, world.policy.topology.levels)
    rooms = domain_rooms(fleet, level, kinds, EmptyRoom(fleet))
    if rooms.enough:
        return None
    return Reason(Code.NEVER_FITS, *_never(request, len(pods), rooms.best))


def _shares_devices(pod: Pod, world: World) -> bool:
    return bool(pod.claims) and any(world.claims.shared_by(pod.uid, pod.namespace, pod.claims))


def gang_refusal(pods: Sequence[Pod], gang: Gang, team: TeamName, world: World) -> Reason | None:
    """Return why these members of a gang could never start together, even if no pod ran; None if that is not certain.

    No domain could hold them where they require one, or all nodes together could not.
    """
    found = domain_refusal(pods, request_of(gang, world), team, world) or _cluster_refusal(pods, team, world)
    if found is None:
        return None
    return Reason(found.code, "gang {gang} {refusal}", {"gang": gang.name, "refusal": found.statement})


def _cluster_refusal(pods: Sequence[Pod], team: TeamName, world: World) -> Reason | None:
    """Return why all nodes together could not hold these pods; None if that is not certain, as of a pod alone."""
    if len(pods) == 1 or world.policy.placement.mode is Mode.OFF or any(pod.claims or pod.shares_by for pod in pods):
        return None
    kinds, fleet = kinds_of(pods, team, world, ignores_taints=True), world.fleet
    able = [fleet.could_hold(kind.demand, kind.slots).bit_count() for kind in kinds]
    if not all(able) or sum(kind.number for kind in kinds) <= min(able):  # one each: without a pass over the nodes
        return None
    if any(_may_change(pod, None, team, world) for pod in pods):
        return None
    holds, is_enough = cluster_room(fleet, kinds, EmptyRoom(fleet))
    if is_enough:
        return None
    words = (
        "has {pods:pod}, and the nodes that they may use hold {holds} of them when empty: it can never start whole; "
        "make it smaller"
    )
    return Reason(Code.NEVER_FITS, words, {"pods": len(pods), "holds": holds})


def gang_warnings(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    """Return what is ignored of what a pod says about its gang and domains; `request` is the domain it asks for."""
    ignored = _ignored_domain(pod, request, world)
    return (
        (Reason(Code.GANG_IGNORED, "{problem}", {"problem": pod.gang_problem}), *ignored)
        if pod.gang_problem
        else ignored
    )


def _ignored_domain(pod: Pod, request: DomainRequest | None, world: World) -> tuple[Reason, ...]:
    if pod.domain_problem:
        return (Reason(Code.TOPOLOGY_IGNORED, "{problem}", {"problem": pod.domain_problem}),)
    if request is None or not request.key or request.is_required or not len(world.fleet):
        return ()
    if world.fleet.domains(request.key).bits:
        return ()
    words = "no node has label {key}: the gang is placed as if it did not prefer one such domain"
    return (Reason(Code.TOPOLOGY_IGNORED, words, {"key": request.key}),)


def place_beside(pod: Pod, world: World) -> DomainPlace | None:
    """Return the domain of a pod whose gang has started: the smallest with room that has the others; None if none.

    What is required is kept to without room, too: the pod waits.
    """
    if pod.gang is None or not world.gangs.has_started(pod.gang.id):
        return None
    if (node := _node_of_others(pod.gang, world)) is None:
        return None
    request = request_of(pod.gang, world)
    if request == ANYWHERE:
        return None
    last = None
    for level in levels_to_try(request, world.policy.topology.levels):
        if (found := domain_of(node, level)) is not None:
            name, requirements = found
            is_required = request is not None and request.is_required
            last = DomainPlace(name, requirements, is_required, "with the other pods of its gang")
            slots = world.fleet.matching(pod.constraints.joined(requirements=requirements))
            if world.fleet.with_room(pod.demand, slots & world.fleet.open_bits):
                return last
    return last if last is not None and last.is_required else None


def place_of_node(gang: Gang | None, node: Node | None, world: World) -> DomainPlace | None:
    """Return the domain that a gang requires, where a member of it is charged on a node already."""
    request = None if gang is None else request_of(gang, world)
    if request is None or not request.is_required or node is None:
        return None
    (level,) = asked_levels(request, world.policy.topology.levels)
    found = domain_of(node, level)
    return None if found is None else DomainPlace(*found, is_required=True, why="charged there")


def _node_of_others(gang: Gang, world: World) -> Node | None:
    first = world.gangs.first(gang.id)
    pod = None if first is None else world.pod(first)
    name = None if pod is None else pod.node or pod.promised
    return None if name is None else world.fleet.get(name)


def _may_change(pod: Pod, key: str | None, team: TeamName, world: World) -> bool:
    """Whether an autoscaler may add nodes for a pod, or nodes with this label that could hold it left lately.

    None: nodes with any labels.
    """
    labeled = () if key is None else (Requirement(key, Operator.EXISTS),)
    return any(
        grows(pool, world)
        or world.absent_nodes.capable(
            pod.demand, world.pools.joined(pod.constraints, pool).joined(requirements=labeled, tolerations=EVERY_TAINT)
        )
        for pool in allowed_pools(pod, team, world).allowed
    )


def _never(request: DomainRequest, number: int, largest: DomainRoom | None) -> Statement:
    facts: dict[str, object] = {"key": request.key, "pods": number}
    if largest is None:
        words = "requires one {key} for {pods:pod}, and no node that it may use has this label; correct the key"
        return Statement(words, facts)
    words = (
        "requires one {key} for {pods:pod}, and the largest, {domain}, holds {holds} of them when empty: it can never "
        "start whole; make it smaller, or ask for a larger domain"
    )
    return Statement(words, {**facts, "domain": largest.name, "holds": largest.holds})
