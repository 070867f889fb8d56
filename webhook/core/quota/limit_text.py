"""The message of a broken limit: requested, limit, used, the largest holders, and what would pass now.

Events count equal messages, so each attempt of a controller must produce the same one: a message contains nothing that
changes by the second once reservations are in use, and ages are coarse.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from webhook.core.model.amount import ONE_GPU, Limit, Units, Unlimited, exceeds, format_limit, gpus_text
from webhook.core.model.demand import Demand, Weights
from webhook.core.model.names import ResourceName
from webhook.core.model.text import coarse_age, printable, shortened
from webhook.core.quota.holders import Holder

HOLDERS: Final = 3
"""The number of holders in a message."""

_LONGEST_USER: Final = 63
_WAITING_SECONDS: Final = 60
"""The age at which a pod is reported as waiting: kube-scheduler binds a pod that fits within seconds."""

_ENDING: Final = "wait until the nodes of the deleted pods have ended them"

_NO_WEIGHTS: Final[Weights] = {}


class Request(NamedTuple):
    """What is requested, as far as a message needs it.

    `devices` are the GPU resources by name with their amounts, `now` is in seconds of Unix time, 0 to leave out ages.
    """

    gpus: Units
    devices: tuple[tuple[ResourceName, int], ...] = ()
    weights: Weights = _NO_WEIGHTS
    now: int = 0

    @classmethod
    def of(cls, demand: Demand, weights: Weights, now: int) -> "Request":
        """Return the request of a pod with this demand."""
        return cls(demand.gpus, demand.devices, weights, now)

    @property
    def piece(self) -> tuple[ResourceName, Units] | None:
        """The one requested resource and the GPU units of one piece; None if there is no single one."""
        if len(self.devices) != 1:
            return None
        [(name, number)] = self.devices
        weight = self.weights.get(name, 0)
        return (name, weight) if weight and number * weight == self.gpus else None


def violation_text(
    request: Request,
    subject: str,
    limit: Limit,
    *,
    taken: Units,
    room: Units,
    holders: Sequence[Holder] | None,
    reserved: Units | None = None,
    kept: Units = 0,
    wait: str = "wait until a holder ends, or delete one",
) -> str:
    """Return which limit is broken and what to do; `holders` is None where waiting cannot help.

    `reserved` is the part of `taken` that pods in creation hold, None if not known. `kept` is room besides that waiting
    pods inside their guaranteed shares get first. `wait` is the advice if nothing is
    left.
    """
    summary = f"{printable(subject)}: requested {_requested(request)}, limit {format_limit(limit)}"
    if holders is None:
        return f"{summary}; split the work over more pods, or ask for {_most(request, limit)} per pod"
    named = ", ".join(_holder(holder, request.now) for holder in holders)
    held = f"; largest holders: {named}" if named else ""
    used = f"used {gpus_text(taken - (reserved or 0))}"
    besides = "" if reserved is None else f", reserved {gpus_text(reserved)}"
    besides += f", kept for pods inside their guaranteed shares {gpus_text(kept)}" if kept else ""
    if holders and all(holder.is_leaving for holder in holders):
        wait = _ENDING
    return f"{summary}, {used}{besides}{held}; {_advice(request, limit, room, wait)}"


def _requested(request: Request) -> str:
    gpus, piece = gpus_text(request.gpus), request.piece
    if piece is None or piece[1] == ONE_GPU:
        return gpus
    return f"{gpus} ({piece[0]} {request.devices[0][1]})"


def _advice(request: Request, limit: Limit, room: Units, wait: str) -> str:
    if room <= 0 or _pieces(request, room) == 0:
        what = f"{_noun(request)} would pass now ({gpus_text(room)} is left)" if room > 0 else "request would pass now"
        never = f"; one of more than {format_limit(limit)} never will" if exceeds(request.gpus, limit) else ""
        return f"no {what}: {wait}{never}"
    return f"a request of {_most(request, room)} would pass now"


def _noun(request: Request) -> str:
    piece = request.piece
    return "request" if piece is None else "whole GPU" if piece[1] == ONE_GPU else piece[0]


def _most(request: Request, room: Units | Unlimited) -> str:
    """Return the largest request that fits into the room, in the requested resource."""
    if isinstance(room, Unlimited):
        return "less"
    piece, pieces = request.piece, _pieces(request, room)
    if piece is None or pieces is None:
        left = gpus_text(room)
        return left if left.startswith("less than ") else f"at most {left}"
    if not pieces:
        return "less"
    return f"at most {pieces}" if piece[1] == ONE_GPU else f"at most {pieces} {piece[0]}"


def _pieces(request: Request, room: Units) -> int | None:
    """Return how many pieces of the requested resource fit; None if there is no single one."""
    piece = request.piece
    return None if piece is None else max(0, room // piece[1])


def _holder(holder: Holder, now: int) -> str:
    """Return a holder with its GPUs, its user, the age of the holding, and whether it still waits."""
    details = []
    if holder.user is not None and not holder.user.startswith("system:"):
        details.append(shortened(printable(holder.user), _LONGEST_USER))
    age = max(0, now - holder.since) if now and holder.since else None
    if age is not None and (coarse := coarse_age(age)):
        details.append(coarse)
    if holder.is_leaving:
        details.append("deleted, its node has not ended it")
    elif holder.is_waiting and (age is None or age >= _WAITING_SECONDS):
        details.append("waiting")
    besides = f" ({', '.join(details)})" if details else ""
    return f"{printable(holder.name)} {gpus_text(holder.gpus)}{besides}"
