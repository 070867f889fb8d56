"""The results of a review: workloads, groups of equal pods, and their places in files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from webhook.cli.formatting import plural
from webhook.core.model.amount import Units
from webhook.core.model.decision import Outcome
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, TeamName
from webhook.core.model.reason import Reason, cause_of, refusal_text
from webhook.core.model.text import ordinal, place_text
from webhook.core.model.tier import Tier

Word = Literal["admitted", "queued", "refused", "unknown"]
"""What would happen to pods, as reviews write it."""

WORDS: Final[Mapping[Outcome, Word]] = {
    Outcome.ADMIT: "admitted",
    Outcome.QUEUE: "queued",
    Outcome.DENY: "refused",
    Outcome.SKIP: "unknown",
}


OUTCOMES: Final = (Outcome.ADMIT, Outcome.QUEUE, Outcome.DENY, Outcome.SKIP)
"""The outcomes of pods in a review: admitted, queued, refused, and what cannot be judged."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a document: file, first line, and number in the file, from 1."""

    source: str
    line: int
    document: int


@dataclass(frozen=True, slots=True)
class Patch:
    """A pod as written and as it would be stored."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]


NOTE: Final = "Note"
"""The code of what has no reason code, such as warnings from reading a manifest."""


class ReviewWarning(NamedTuple):
    """A warning about a workload, with the code of its reason."""

    text: str
    code: str = NOTE

    @classmethod
    def of(cls, reason: Reason, *, about: str = "") -> "ReviewWarning":
        """Return the warning of a reason; `about` goes before its text."""
        return cls(f"{about}{reason.text} ({reason.code})", reason.code)


NO_PLACES: Final = range(0)
_FEW: Final = 5


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Equal pods of one role with the same outcome.

    `count` is None if the manifest does not determine it; `demand` and `nodes` (the first choices) are those of one
    pod, None and empty if unknown. `line` is that of the GPU request. `places` are those in the team's line, from 1,
    empty for pods that would not wait.
    """

    role: str
    count: int | None
    outcome: Outcome
    reasons: tuple[Reason, ...]
    line: int
    demand: Demand | None = None
    team: TeamName | None = None
    tier: Tier | None = None
    nodes: tuple[NodeName, ...] = ()
    patch: Patch | None = None
    places: range = NO_PLACES

    @property
    def places_text(self) -> str:
        """The places in line in words, each of a few, such as `3rd and 4th in line`; "" for none."""
        if not self.places:
            return ""
        few = [ordinal(each) for each in self.places[:_FEW]]
        if len(self.places) > _FEW:
            return f"{few[0]} to {ordinal(self.places[-1])} in line"
        *before, _ = few
        return f"{', '.join(before)}{' and ' if before else ''}{place_text(self.places[-1])}"

    @property
    def texts(self) -> tuple[Reason, ...]:
        """The reasons as messages, those of pods that would wait with their places."""
        if not self.places:
            return self.reasons
        words, where = "waits: {cause}; {places}", self.places_text
        return tuple(Reason(each.code, words, {"cause": cause_of(each), "places": where}) for each in self.reasons)

    @property
    def gpus(self) -> Units:
        """The request of all of them together, in GPU units."""
        return self.demand.gpus * (self.count or 0) if self.demand is not None else 0

    @property
    def asks_gpus(self) -> bool:
        """Whether these pods request GPUs, or may do so."""
        is_concerned = self.outcome in (Outcome.DENY, Outcome.SKIP)
        return is_concerned or self.demand is None or bool(self.demand.gpus)

    @property
    def why(self) -> str:
        """The reasons as the message that the API server would return."""
        return refusal_text(self.reasons)


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """The result of one object, or of one place that cannot be read (without kind and name)."""

    place: Place
    api_version: str
    kind: str
    namespace: str
    name: str
    pods: tuple[PodGroup, ...]
    warnings: tuple[ReviewWarning, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its pods: refused, then unknown, then queued."""
        return _worst(group.outcome for group in self.pods)

    @property
    def asks_gpus(self) -> bool:
        """Whether it requests GPUs, or may do so."""
        return any(group.asks_gpus for group in self.pods)

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}".rstrip()

    def share(self, group: PodGroup) -> str:
        """Return how many of the role's pods are in a group: 3 of 5 pods."""
        if group.count is None:
            return "its pods"
        total = sum(other.count or 0 for other in self.pods if other.role == group.role)
        of = f"{group.count} of {total} pods" if group.count != total else plural(group.count, "pod")
        return f"{of} of role {group.role}" if group.role else of


class WorldFacts(msgspec.Struct, frozen=True, rename="camel"):
    """The world of a review."""

    source: Annotated[str, msgspec.Meta(description="file, cluster or empty")]
    name: str
    age_seconds: Annotated[float | None, msgspec.Meta(description="age of the file, otherwise null")]
    nodes: int
    pods: int
    policy: Annotated[str, msgspec.Meta(description="hash of the policy")]


@dataclass(frozen=True, slots=True)
class Review:
    """All results. `others` counts objects that create no pods, `skipped` documents that are not Kubernetes objects."""

    workloads: tuple[WorkloadResult, ...]
    world: WorldFacts
    others: int = 0
    skipped: int = 0

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its workloads."""
        return _worst(result.outcome for result in self.workloads)

    def having(self, outcome: Outcome) -> tuple[WorkloadResult, ...]:
        """Return the workloads with this outcome."""
        return tuple(result for result in self.workloads if result.outcome is outcome)


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    found = set(outcomes)
    order = (Outcome.DENY, Outcome.SKIP, Outcome.QUEUE)
    return next((outcome for outcome in order if outcome in found), Outcome.ADMIT)


def demand_text(demand: Demand | None) -> dict[str, str]:
    """Return the devices of a demand as in a manifest."""
    return {} if demand is None else {name: str(amount) for name, amount in demand.devices}
