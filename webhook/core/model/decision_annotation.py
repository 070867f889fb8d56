"""The decision annotation as read by the validating step; webhook/kube/admission/pod_patch.py writes it."""

import json
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.core.model.amount import parse_amount
from webhook.core.model.names import GpuModel, NodeName, PoolName, ResourceName, Uid, User
from webhook.core.model.pod import Admitted
from webhook.core.model.selector import NO_CONSTRAINTS, Constraints


class Own(NamedTuple):
    """Which parts of its pool's conditions a pod had before the decision: those are its user's."""

    has_selector: bool = False
    has_tolerations: bool = False
    has_affinity: bool = False

    @classmethod
    def of(cls, text: str) -> "Own":
        """Return what a text says."""
        return cls("s" in text, "t" in text, "a" in text)

    @property
    def text(self) -> str:
        """The text that says this."""
        return "".join(letter for letter, is_own in zip("sta", self, strict=True) if is_own)


class DecisionAnnotation(NamedTuple):
    """The decision as written on the pod: compact JSON, amounts as strings.

    `listed`: how many nodes the pod's node affinity names, which the annotation does not repeat; 0 where it does.
    `domain` is where all pods of its gang are, "" where they need not be in one, and `why` says why. `own` is what of
    its pool's conditions is the user's.
    """

    demand: tuple[tuple[ResourceName, int], ...]
    gpus: str
    mode: str
    nodes: tuple[NodeName, ...]
    pool: PoolName | None
    model: GpuModel | None
    user: User | None
    asked: str | None
    code: str
    policy: str
    at: str
    claims: tuple[Uid, ...] = ()
    listed: int = 0
    domain: str = ""
    why: str = ""
    own: Own = Own()

    @property
    def admitted(self) -> Admitted | None:
        """Return the charge that a pod with claims was admitted with; None where the amount is not valid."""
        try:
            return Admitted(parse_amount(self.gpus), self.policy, self.claims)
        except ValueError:
            return None


_OF: Final = ',"of":"'


def subject_of(text: str) -> str:
    """Return the pod for which a decision was written, by namespace and name; "" where that is not said."""
    return text.partition(_OF)[2].partition('"')[0]


@lru_cache(maxsize=128)  # a pod may be judged again, and the annotation of a charged one is read once more
def read(text: str, constraints: Constraints = NO_CONSTRAINTS) -> DecisionAnnotation | None:
    """Parse the annotation; None where it is not a decision of Fairgate. The constraints are the pod's own."""
    head, of, rest = text.partition(_OF)
    found = _parse(head + rest.partition('"')[2] if of else text)
    if found is None or not found.listed:
        return found
    return found._replace(nodes=tuple(map(NodeName, constraints.named_nodes)))


@lru_cache(maxsize=128)  # pods of one template, created in one second, differ in their nodes only
def _parse(text: str) -> DecisionAnnotation | None:
    """Parse the annotation without the nodes that it does not repeat, and without the pod's name."""
    try:
        data = json.loads(text)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode()  # half a surrogate can be parsed, but not encoded again
        listed = int(data.get("listed", 0))
        return DecisionAnnotation(
            demand=tuple(sorted((ResourceName(str(name)), int(count)) for name, count in data["demand"].items())),
            gpus=str(data["gpus"]),
            mode=str(data["mode"]),
            nodes=() if listed else tuple([NodeName(str(name)) for name in data["nodes"]]),
            pool=PoolName(str(data["pool"])) if "pool" in data else None,
            model=GpuModel(str(data["model"])) if "model" in data else None,
            user=User(str(data["user"])) if "user" in data else None,
            asked=str(data["asked"]) if "asked" in data else None,
            code=str(data["code"]),
            policy=str(data["policy"]),
            at=str(data["at"]),
            claims=tuple(Uid(str(uid)) for uid in data.get("claims", ())),
            listed=listed,
            domain=str(data.get("domain", "")),
            why=str(data.get("why", "")),
            own=Own.of(str(data.get("own", ""))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
