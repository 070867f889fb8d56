"""A team, its departments, its largest holders, tenancy.

The largest holders of a sum: of a team's GPUs, of one user's, of one model's.

Sums are updated by events. The order is kept from the first query on, as a heap whose outdated items are dropped when
they reach the top: repeated refusals do not scan all holders.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from webhook.core.devices.claims import ADMIN_ACCESS
from webhook.core.model.amounts import ANY_MODEL, UNASSIGNED, GpuModel, Namespace, TeamName, Units, User
from webhook.core.model.decision import Charge
from webhook.core.model.pod import NamespaceFacts, Pod, Requester
from webhook.core.model.policy import Department, Policy, Team, UnknownUser, UserSource
from webhook.core.model.reasons import Code, Reason

_SLACK: Final = 64
"""Outdated items that a heap may have besides one for each holder."""


class Holder(NamedTuple):
    """A controller, or a bare pod, that holds GPUs.

    `user` is None where no user is known. `since`, in seconds of Unix time, is when the first of its pods was created,
    0 where that is not known. `is_waiting`: none of its pods is on a node yet. `is_leaving`: all of them are deleted.
    """

    name: str
    gpus: Units
    user: User | None = None
    since: int = 0
    is_waiting: bool = False
    is_leaving: bool = False


class Holders:
    """GPU units by holder, with their total."""

    __slots__ = ("_heap", "_sums", "total")

    def __init__(self) -> None:
        self.total: Units = 0
        self._sums: dict[str, Units] = {}
        self._heap: list[tuple[Units, str]] | None = None  # from the first query on

    def __len__(self) -> int:
        return len(self._sums)

    def of(self, name: str) -> Units:
        """Return the units of one holder."""
        return self._sums.get(name, 0)

    def change(self, name: str, gpus: Units) -> None:
        """Add units to a holder, or subtract them."""
        self.total += gpus
        left = self._sums.get(name, 0) + gpus
        if not left:
            self._sums.pop(name, None)
            return
        self._sums[name] = left
        heap = self._heap
        if heap is not None:
            if len(heap) > 2 * len(self._sums) + _SLACK:
                self._heap = None
            else:
                heappush(heap, (-left, name))

    def largest(self, count: int) -> list[tuple[str, Units]]:
        """Return the largest holders, the largest first, ties by name."""
        heap = self._heap
        if heap is None:
            heap = self._heap = [(-gpus, name) for name, gpus in self._sums.items()]
            heapify(heap)
        found: dict[str, tuple[Units, str]] = {}
        while heap and len(found) < count:
            item = heappop(heap)
            if self._sums.get(item[1]) == -item[0]:
                found[item[1]] = item
        for item in found.values():
            heappush(heap, item)
        return [(name, -negative) for name, (negative, _) in found.items()]


class HolderDetails:
    """Details of one holder besides its sums."""

    __slots__ = ("gpus", "leaving", "pods", "since", "user", "waiting")

    def __init__(self) -> None:
        self.pods = 0
        self.gpus: Units = 0
        self.waiting: Units = 0
        self.leaving: Units = 0
        self.since = 0
        self.user: User | None = None


# Room of one limit that is kept for pods that wait inside their teams' guaranteed shares.
#
# Reclaim evicts pods that borrow under a limit for them. What comes back must not go to the next borrower, such as the
# pod that the victim's controller creates again: pods that borrow are admitted as if the kept room were in use. The
# same holds for what pods deleted by force leave, which no eviction ends: it is for the pods inside shares that wait in
# line.


ENDED_SECONDS: Final = 10
"""For how long the room of a charge that ended is kept for queued ones: the leader looks at the line in a second."""


class ShareUsage(Protocol):
    """How much of its guaranteed share a team uses."""

    guaranteed: Units


class TeamKeeps(NamedTuple):
    """What one team keeps: no more than its share has left."""

    gpus: Units
    share: Units
    usage: ShareUsage

    @property
    def total(self) -> Units:
        """The units that are kept."""
        return min(self.gpus, max(0, self.share - self.usage.guaranteed))


class KeptRoom:
    """What is kept of one limit, by team. No team keeps more than it has left of its guaranteed share.

    `lines` is what the queued pods of each team have left of its share. Every decision asks first whether `teams` and
    `lines` are empty.
    """

    __slots__ = ("lines", "teams")

    def __init__(self) -> None:
        self.teams: dict[TeamName, TeamKeeps] = {}
        self.lines: dict[TeamName, TeamKeeps] = {}

    def to_leave(self, lingered: Units = 0, *, apart: TeamName | None = None) -> Units:
        """Return the units that are kept where pods deleted by force hold so many, without those of one team."""
        marked = sum(each.total for team, each in self.teams.items() if team != apart)
        if not (lingered and self.lines):
            return marked
        return max(marked, min(lingered, sum(each.total for team, each in self.lines.items() if team != apart)))

    def set(self, team: TeamName, gpus: Units, *, line: Units = 0, share: Units, usage: ShareUsage) -> None:
        """Keep room for a team's waiting pods of so many units, and those of its `line` of so many; 0: none."""
        for kept, units in ((self.teams, gpus), (self.lines, line)):
            if units:
                kept[team] = TeamKeeps(units, share, usage)
            else:
                kept.pop(team, None)


class LingeringUsage(Protocol):
    """What pods deleted by force hold of limits."""

    def linger(self, gpus: Units) -> None:
        """Add so many units to what they hold."""


class EndedCharges:
    """Charges of pods deleted by force that ended a moment ago: their room still counts as theirs for what is kept.

    Otherwise the next pod that is deleted at once takes it before the queue is looked at.
    """

    def __init__(self) -> None:
        self._ended: deque[tuple[int, LingeringUsage, Units]] = deque()

    def add(self, usage: LingeringUsage, gpus: Units, *, now: int) -> None:
        """Note that a charge of a usage ends now."""
        usage.linger(gpus)
        self._ended.append((now + ENDED_SECONDS, usage, gpus))

    def tick(self, now: int) -> None:
        """Forget those that ended long enough ago."""
        while self._ended and self._ended[0][0] <= now:
            _, usage, gpus = self._ended.popleft()
            usage.linger(-gpus)


# A department's usage: the sums of all teams below it, kept by the same events as theirs.
#
# Each team's usage knows the departments above it (`TeamUsage.levels`), so a charge costs one addition per level, and a
# decision reads one sum per level. No team is ever scanned.


class DepartmentUsage:
    """The sums of the teams below one department, in GPU units."""

    __slots__ = (
        "_by_model",
        "_guaranteed_by_model",
        "_teams",
        "changes",
        "department",
        "guaranteed",
        "kept",
        "lingered",
        "lingering",
        "reserved",
        "waiting",
    )

    def __init__(self, department: Department) -> None:
        self.department = department
        self._teams = Holders()
        self._by_model: dict[GpuModel, Holders] = {}
        self._guaranteed_by_model: dict[GpuModel, Units] = {}
        self.kept = KeptRoom()
        self.changes = 0  # how often a charge was added or subtracted
        self.reserved: Units = 0
        self.guaranteed: Units = 0
        self.waiting: Units = 0
        self.lingering: Units = 0
        self.lingered: Units = 0  # the same, with those of teams whose charges ended a moment ago

    @property
    def total(self) -> Units:
        """The units of all pods."""
        return self._teams.total

    @property
    def preemptible(self) -> Units:
        """The units of pods that may be evicted."""
        return self.total - self.guaranteed

    def model(self, model: GpuModel) -> Units:
        """Return the units charged to one GPU model, and those that may still end on it."""
        return sum(held.total for held in self._on(model))

    def guaranteed_model(self, model: GpuModel) -> Units:
        """Return the guaranteed units charged to one GPU model."""
        return self._guaranteed_by_model.get(model, 0)

    def change(
        self,
        charge: Charge,
        gpus: Units,
        *,
        is_reserved: bool,
        is_waiting: bool,
        is_guaranteed: bool,
        is_lingering: bool = False,
    ) -> None:
        """Add a charge of a team, or (negative `gpus`) subtract it."""
        self.changes += 1
        self._teams.change(charge.team, gpus)
        if charge.model is not None:
            held = self._by_model.get(charge.model)
            if held is None:
                held = self._by_model[charge.model] = Holders()
            held.change(charge.team, gpus)
            if not len(held):
                del self._by_model[charge.model]
        if is_reserved:
            self.reserved += gpus
        if is_lingering:
            self.lingering += gpus
        if is_waiting:
            self.waiting += gpus
        if is_guaranteed:
            self.guaranteed += gpus
            if charge.model is not None:
                self._guaranteed_by_model[charge.model] = self._guaranteed_by_model.get(charge.model, 0) + gpus

    def largest(self, count: int, *, model: GpuModel | None = None) -> list[Holder]:
        """Return the teams that hold most, in total or of one model, the largest first, ties by name."""
        kinds = [self._teams] if model is None else self._on(model)
        names = {name for held in kinds for name, _ in held.largest(count)}
        sums = sorted((-sum(held.of(name) for held in kinds), name) for name in names)
        return [Holder(f"team {name}", -gpus) for gpus, name in sums[:count]]

    def _on(self, model: GpuModel) -> list[Holders]:
        keys = dict.fromkeys((model, ANY_MODEL))
        return [held for key in keys if (held := self._by_model.get(key)) is not None]


# The team of a namespace, exemption, and the user behind a pod.


EXEMPT_LABEL: Final = "fairgate.dev/exempt"

HIDDEN: Final = "*"
"""Begins the name of a namespace that stands for those of a team which the reader may not read; no real one has it."""

LONGEST_USER: Final = 253
"""Characters of a user's name that count: labels and annotations may be longer, and every charge carries it."""


def hidden_namespace(team: TeamName) -> Namespace:
    """Return the namespace that stands for those of a team which the reader may not read."""
    return Namespace(f"{HIDDEN}{team}")


def is_hidden(namespace: Namespace) -> bool:
    """Whether a namespace stands for others that the reader may not read."""
    return namespace.startswith(HIDDEN)


def team_of(namespace: NamespaceFacts, policy: Policy) -> Team | None:
    """Return the team of a namespace: an exact name beats a glob, a glob beats a selector, then policy order."""
    if is_hidden(namespace.name):
        return policy.team(TeamName(namespace.name.removeprefix(HIDDEN)))
    for team in policy.teams:
        if namespace.name in team.namespaces:
            return team
    for team in policy.teams:
        if any(fnmatchcase(namespace.name, glob) for glob in team.namespaces):
            return team
    for team in policy.teams:
        if team.namespace_selector is not None and team.namespace_selector.matches(namespace.labels):
            return team
    return None


def is_exempt(namespace: NamespaceFacts, policy: Policy) -> bool:
    """Whether Fairgate leaves the pods of this namespace alone (they are counted all the same)."""
    return namespace.labels.get(EXEMPT_LABEL, "false") != "false" or any(
        fnmatchcase(namespace.name, glob) for glob in policy.exempt if not is_hidden(namespace.name)
    )


def is_exempt_by_default(namespace: NamespaceFacts, policy: Policy) -> bool:
    """Whether nothing exempts this namespace but that it has the name of a device operator's."""
    if namespace.name not in policy.operator_namespaces or namespace.labels.get(EXEMPT_LABEL, "false") != "false":
        return False
    return not any(fnmatchcase(namespace.name, glob) for glob in policy.exempt_namespaces)


def exempt_reason(namespace: NamespaceFacts, policy: Policy) -> Reason:
    """Return why the pods of an exempt namespace are only counted."""
    words = (
        "namespace {namespace} is exempt by default, as a device operator's (exempt.operators): only counted"
        if is_exempt_by_default(namespace, policy)
        else "namespace {namespace} is exempt: only counted"
    )
    return Reason(Code.EXEMPT, words, {"namespace": namespace.name})


def user_of(
    pod: Pod, requester: Requester, namespace: NamespaceFacts, policy: Policy, *, home: NamespaceFacts | None = None
) -> User | None:
    """Return the user behind a pod, or None: a guess would charge the wrong person.

    A person is charged directly, even if the pod names an owner. A controller acts through its service account, so its
    pods belong to the user named by policy's `userFrom`. `home` is the namespace of a service account that a team's own
    users can create: it counts as the owner of that namespace, and all service accounts of a namespace as one user
    where none is named. Otherwise they would multiply the limit.
    """
    if not requester.is_service_account:
        return User(requester.username[:LONGEST_USER]) if requester.username else None
    for key in policy.defaults.user_from:
        if user := _values(key.source, pod, home or namespace).get(key.key):
            return User(user[:LONGEST_USER])
    if home is not None or pod.owner is None:
        return User(f"system:serviceaccounts:{requester.home}")
    if policy.defaults.unknown_user is UnknownUser.NAMESPACE:
        return User(f"system:serviceaccounts:{namespace.name}")
    return None


_OF_NAMESPACE = (UserSource.NAMESPACE_ANNOTATION, UserSource.NAMESPACE_LABEL)
_ANNOTATIONS = (UserSource.NAMESPACE_ANNOTATION, UserSource.POD_ANNOTATION)


def _values(source: UserSource, pod: Pod, namespace: NamespaceFacts) -> Mapping[str, str]:
    of = namespace if source in _OF_NAMESPACE else pod
    return of.annotations if source in _ANNOTATIONS else of.labels


def unknown_namespace(name: Namespace) -> NamespaceFacts:
    """Return a namespace that the world has not seen (yet): a name, no labels, no annotations."""
    return NamespaceFacts(name)


# The team of each namespace: the namespaces that were seen, assigned by the current policy.


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The team of a namespace under the current policy."""

    facts: NamespaceFacts
    team: Team | None
    is_exempt: bool

    @property
    def team_name(self) -> TeamName:
        """Return the team that is charged; UNASSIGNED where the namespace has no team."""
        return UNASSIGNED if self.team is None else self.team.name

    @property
    def has_admin_access(self) -> bool:
        """Whether its pods may monitor devices that other pods use."""
        return self.facts.labels.get(ADMIN_ACCESS) == "true"


class Tenancies:
    """The namespaces seen, with their teams, and the namespaces of known pods that were not seen yet."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[Namespace, NamespaceFacts] = {}
        self._tenancies: dict[Namespace, Tenancy] = {}
        self._unseen: set[Namespace] = set()

    def __contains__(self, name: Namespace) -> bool:
        return name in self._seen

    def seen(self) -> Iterable[NamespaceFacts]:
        """Return the namespaces that were seen."""
        return self._seen.values()

    @property
    def has_unseen(self) -> bool:
        """Whether there are pods in a namespace that was not seen yet."""
        return bool(self._unseen)

    def is_unseen_with_pods(self, name: Namespace) -> bool:
        """Whether there are pods in this namespace although it was not seen yet."""
        return name in self._unseen

    def of(self, name: Namespace) -> Tenancy:
        """Return the team of a namespace; an unseen one is assigned by its name alone."""
        known = self._tenancies.get(name)
        if known is None:
            facts = self._seen.get(name) or unknown_namespace(name)
            known = Tenancy(facts, team_of(facts, self._policy), is_exempt(facts, self._policy))
            self._tenancies[name] = known
        return known

    def set_policy(self, policy: Policy) -> None:
        """Assign namespaces by another policy from now on."""
        self._policy = policy
        self._tenancies.clear()

    def set(self, facts: NamespaceFacts) -> bool:
        """Add or update a namespace; return whether anything changed."""
        if self._seen.get(facts.name) == facts:
            return False
        self._seen[facts.name] = facts
        self._unseen.discard(facts.name)
        return True

    def remove(self, name: Namespace) -> bool:
        """Remove a namespace; return whether it was known."""
        return self._seen.pop(name, None) is not None

    def reassign(self, name: Namespace) -> bool:
        """Assign a namespace again; return whether its team may have changed."""
        before = self._tenancies.pop(name, None)
        return before is None or before.team_name != self.of(name).team_name

    def note_pods(self, name: Namespace, *, are_there: bool) -> None:
        """Record whether pods were seen in a namespace; without effect where the namespace itself is known."""
        if are_there and name not in self._seen:
            self._unseen.add(name)
        else:
            self._unseen.discard(name)
