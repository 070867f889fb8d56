"""The decision annotation: what the mutating step decided, for the validating step, for people and for tools."""

import json
from dataclasses import dataclass

from webhook.core.amount import format_gpus
from webhook.core.decision import Admit
from webhook.core.names import GpuModel, NodeName, PoolName, ResourceName, User


@dataclass(frozen=True, slots=True)
class Mark:
    """The decision as written on the pod: compact JSON, amounts as strings."""

    demand: tuple[tuple[ResourceName, int], ...]
    gpus: str
    mode: str
    nodes: tuple[NodeName, ...]
    pool: PoolName | None
    model: GpuModel | None
    user: User | None
    code: str
    policy: str
    at: str


def mark_of(admit: Admit, *, at: str) -> Mark:
    """Make the mark of a decision, taken at that time (RFC 3339)."""
    return Mark(
        demand=admit.demand.devices,
        gpus=format_gpus(admit.charge.gpus),
        mode=admit.steering.mode,
        nodes=admit.steering.nodes,
        pool=admit.steering.pool,
        model=admit.charge.model,
        user=admit.charge.user,
        code=admit.reason.code,
        policy=admit.policy_hash,
        at=at,
    )


def write(mark: Mark) -> str:
    """Write a mark as compact JSON."""
    told: dict[str, object] = {
        "demand": {name: str(count) for name, count in mark.demand},
        "gpus": mark.gpus,
        "mode": mark.mode,
        "nodes": mark.nodes,
        "code": mark.code,
        "policy": mark.policy,
        "at": mark.at,
    }
    if mark.pool is not None:
        told["pool"] = mark.pool
    if mark.model is not None:
        told["model"] = mark.model
    if mark.user is not None:
        told["user"] = mark.user
    return json.dumps(told, separators=(",", ":"))


def read(text: str) -> Mark | None:
    """Read a mark; None where somebody else wrote something that is none."""
    try:
        told = json.loads(text)
        return Mark(
            demand=tuple(sorted((ResourceName(str(name)), int(count)) for name, count in told["demand"].items())),
            gpus=str(told["gpus"]),
            mode=str(told["mode"]),
            nodes=tuple(NodeName(str(name)) for name in told["nodes"]),
            pool=PoolName(str(told["pool"])) if "pool" in told else None,
            model=GpuModel(str(told["model"])) if "model" in told else None,
            user=User(str(told["user"])) if "user" in told else None,
            code=str(told["code"]),
            policy=str(told["policy"]),
            at=str(told["at"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
