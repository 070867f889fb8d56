"""Whose each namespace is: what was seen of namespaces, judged by the current policy."""

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.core.dra.dra_claims import ADMIN_ACCESS
from webhook.core.model.names import UNASSIGNED, Namespace, TeamName
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import Policy, Team
from webhook.core.quota.team import is_exempt, team_of, unknown_namespace


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Whose a namespace is under the current policy."""

    facts: NamespaceFacts
    team: Team | None
    is_exempt: bool

    @property
    def team_name(self) -> TeamName:
        """Name the team that is charged; UNASSIGNED where nobody claimed the namespace."""
        return UNASSIGNED if self.team is None else self.team.name

    @property
    def may_look(self) -> bool:
        """Tell whether its pods may look at devices that others use."""
        return self.facts.labels.get(ADMIN_ACCESS) == "true"


class Tenancies:
    """The namespaces that were seen, whose each is, and those that pods sit in although they are still to be seen."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[Namespace, NamespaceFacts] = {}
        self._judged: dict[Namespace, Tenancy] = {}
        self._strange: set[Namespace] = set()

    def __contains__(self, name: Namespace) -> bool:
        return name in self._seen

    def seen(self) -> Iterable[NamespaceFacts]:
        """List the namespaces that were seen."""
        return self._seen.values()

    @property
    def has_strange(self) -> bool:
        """Tell whether pods sit in a namespace that is still to be seen."""
        return bool(self._strange)

    def is_strange(self, name: Namespace) -> bool:
        """Tell whether pods sit in this namespace although it is still to be seen."""
        return name in self._strange

    def of(self, name: Namespace) -> Tenancy:
        """Tell whose a namespace is; an unseen one is judged by its name alone."""
        known = self._judged.get(name)
        if known is None:
            facts = self._seen.get(name) or unknown_namespace(name)
            known = Tenancy(facts, team_of(facts, self._policy), is_exempt(facts, self._policy))
            self._judged[name] = known
        return known

    def set_policy(self, policy: Policy) -> None:
        """Judge from now on by another policy."""
        self._policy = policy
        self._judged.clear()

    def set(self, facts: NamespaceFacts) -> bool:
        """Take in a namespace; tell whether anything of it is new."""
        if self._seen.get(facts.name) == facts:
            return False
        self._seen[facts.name] = facts
        self._strange.discard(facts.name)
        return True

    def remove(self, name: Namespace) -> bool:
        """Forget a namespace; tell whether it was known."""
        return self._seen.pop(name, None) is not None

    def judge_anew(self, name: Namespace) -> bool:
        """Judge a namespace by what is known of it now; tell whether it may belong to another team than before."""
        before = self._judged.pop(name, None)
        return before is None or before.team_name != self.of(name).team_name

    def note_pods(self, name: Namespace, *, are_there: bool) -> None:
        """Note whether pods were seen in a namespace; where it is known itself, that says nothing."""
        if are_there and name not in self._seen:
            self._strange.add(name)
        else:
            self._strange.discard(name)
