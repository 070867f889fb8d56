"""The team of each namespace: the namespaces that were seen, assigned by the current policy."""

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.core.dra.dra_claims import ADMIN_ACCESS
from webhook.core.model.names import UNASSIGNED, Namespace, TeamName
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import Policy, Team
from webhook.core.quota.team import is_exempt, team_of, unknown_namespace


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
