"""The decision annotation as the validating step reads it; webhook/kube/admission/pod_patch.py writes it."""

import json
from dataclasses import dataclass

from webhook.core.model.amount import parse_amount
from webhook.core.model.names import GpuModel, NodeName, PoolName, ResourceName, Uid, User
from webhook.core.model.pod import Admitted


@dataclass(frozen=True, slots=True)
class DecisionAnnotation:
    """The decision as written on the pod: compact JSON, amounts as strings."""

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

    @property
    def admitted(self) -> Admitted | None:
        """Tell what a pod with claims was let in with; None where the amount is none."""
        try:
            return Admitted(parse_amount(self.gpus), self.policy, self.claims)
        except ValueError:
            return None


def read(text: str) -> DecisionAnnotation | None:
    """Read a mark; None where somebody else wrote something that is none."""
    try:
        told = json.loads(text)
        if "\\u" in text:
            json.dumps(told, ensure_ascii=False).encode()  # half a surrogate can be read, but never be sent on
        return DecisionAnnotation(
            demand=tuple(sorted((ResourceName(str(name)), int(count)) for name, count in told["demand"].items())),
            gpus=str(told["gpus"]),
            mode=str(told["mode"]),
            nodes=tuple(NodeName(str(name)) for name in told["nodes"]),
            pool=PoolName(str(told["pool"])) if "pool" in told else None,
            model=GpuModel(str(told["model"])) if "model" in told else None,
            user=User(str(told["user"])) if "user" in told else None,
            asked=str(told["asked"]) if "asked" in told else None,
            code=str(told["code"]),
            policy=str(told["policy"]),
            at=str(told["at"]),
            claims=tuple(Uid(str(uid)) for uid in told.get("claims", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
