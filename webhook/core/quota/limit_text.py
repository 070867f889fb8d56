"""What is said of a broken limit: requested, limit, used, the largest holders, and what would pass now.

Events count equal messages, so each attempt of a controller must produce the same one: a message contains nothing that
changes by the second once reservations are in use, and ages are coarse.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from webhook.core.model.amount import MILLI_GPU, ONE_GPU, Limit, Units, Unlimited, exceeds
from webhook.core.model.demand import Weights
from webhook.core.model.names import ResourceName
from webhook.core.model.statement import Statement
from webhook.core.model.text import coarse_age, shortened
from webhook.core.quota.holders import Holder

HOLDERS: Final = 3
"""The number of holders in a message."""

_LONGEST_USER: Final = 63
_WAITING_SECONDS: Final = 60
"""The age at which a pod is reported as waiting: kube-scheduler binds a pod that fits within seconds."""

WAIT: Final = Statement("wait until a holder ends, or delete one")
_ENDING: Final = Statement("wait until the nodes of the deleted pods have ended them")

_LESS: Final = Statement("less")
_DELETED: Final = Statement("deleted, its node has not ended it")
_IS_WAITING: Final = Statement("waiting")
_NO_WEIGHTS: Final[Weights] = {}


class Request(NamedTuple):
    """What is requested, as far as a message needs it.

    `devices` are the GPU resources by name with their amounts, `now` is in seconds of Unix time, 0 to leave out ages.
    """

    gpus: Units
    devices: tuple[tuple[ResourceName, int], ...] = ()
    weights: Weights = _NO_WEIGHTS
    now: int = 0

    @property
    def piece(self) -> tuple[ResourceName, Units] | None:
        """The one requested resource and the GPU units of one piece; None if there is no single one."""
        if len(self.devices) != 1:
            return None
        [(name, number)] = self.devices
        weight = self.weights.get(name, 0)
        return (name, weight) if weight and number * weight == self.gpus else None


def violation(
    request: Request,
    subject: Statement,
    limit: Limit,
    *,
    taken: Units,
    room: Units,
    holders: Sequence[Holder] | None,
    reserved: Units | None = None,
    lingering: Units = 0,
    kept: Units = 0,
    wait: Statement = WAIT,
) -> Statement:
    """Return which limit is broken and what to do; `holders` is None where waiting cannot help.

    `reserved` is the part of `taken` that pods in creation hold, None if not known, and `lingering` the part of that
    which pods deleted by force left. `kept` is room besides that waiting pods inside their guaranteed shares get first.
    `wait` is the advice if nothing is left.
    """
    facts: dict[str, Any] = {"subject": subject, "requested": request.gpus, "limit": limit}
    words = "{subject}: requested {requested:gpus}"
    piece = request.piece
    if piece is not None and piece[1] != ONE_GPU:
        words += " ({resource} {pieces})"
        facts |= {"resource": piece[0], "pieces": request.devices[0][1]}
    words += ", limit {limit:limit}"
    if holders is None:
        words += "; split the work over more pods, or ask for {most} per pod"
        return Statement(words, facts | {"most": _most(request, limit)})
    words += ", used {used:gpus}"
    facts["used"] = taken - (reserved or 0)
    if reserved is not None:
        words += ", reserved {reserved:gpus}"
        facts["reserved"] = reserved
        if lingering:
            words += " ({lingering:gpus} of pods deleted by force)"
            facts["lingering"] = lingering
    if kept:
        words += ", kept for pods inside their guaranteed shares {kept:gpus}"
        facts["kept"] = kept
    if holders:
        words += "; largest holders: {holders}"
        facts["holders"] = tuple([_holder(holder, request.now) for holder in holders])
        wait = _ENDING if all(holder.is_leaving for holder in holders) else wait
    return Statement(words + "; {advice}", facts | {"advice": _advice(request, limit, room, wait)})


def _advice(request: Request, limit: Limit, room: Units, wait: Statement) -> Statement:
    if room > 0 and _pieces(request, room) != 0:
        return Statement("a request of {most} would pass now", {"most": _most(request, room)})
    words = "no request would pass now: {wait}"
    facts: dict[str, Any] = {"wait": wait}
    if room > 0:
        words = "no {noun} would pass now ({room:gpus} is left): {wait}"
        facts |= {"noun": _noun(request), "room": room}
    if exceeds(request.gpus, limit):
        words += "; one of more than {limit:limit} never will"
        facts["limit"] = limit
    return Statement(words, facts)


def _noun(request: Request) -> str:
    piece = request.piece
    return "request" if piece is None else "whole GPU" if piece[1] == ONE_GPU else piece[0]


def _most(request: Request, room: Units | Unlimited) -> Statement:
    """Return the largest request that fits into the room, in the requested resource."""
    if isinstance(room, Unlimited):
        return _LESS
    piece, pieces = request.piece, _pieces(request, room)
    if piece is None or pieces is None:
        return Statement("at most {gpus:gpus}" if room >= MILLI_GPU else "{gpus:gpus}", {"gpus": room})
    if not pieces:
        return _LESS
    if piece[1] == ONE_GPU:
        return Statement("at most {gpus:gpus}", {"gpus": pieces * ONE_GPU})
    return Statement("at most {pieces} {resource}", {"pieces": pieces, "resource": piece[0]})


def _pieces(request: Request, room: Units) -> int | None:
    """Return how many pieces of the requested resource fit; None if there is no single one."""
    piece = request.piece
    return None if piece is None else max(0, room // piece[1])


def _holder(holder: Holder, now: int) -> Statement:
    """Return a holder with its GPUs, its user, the age of the holding, and whether it still waits."""
    details: list[str | Statement] = []
    if holder.user is not None and not holder.user.startswith("system:"):
        details.append(shortened(holder.user, _LONGEST_USER))
    age = max(0, now - holder.since) if now and holder.since else None
    if age is not None and (coarse := coarse_age(age)):
        details.append(coarse)
    if holder.is_leaving:
        details.append(_DELETED)
    elif holder.is_waiting and (age is None or age >= _WAITING_SECONDS):
        details.append(_IS_WAITING)
    facts: dict[str, Any] = {"holder": holder.name, "gpus": holder.gpus}
    if not details:
        return Statement("{holder} {gpus:gpus}", facts)
    return Statement("{holder} {gpus:gpus} ({details})", facts | {"details": tuple(details)})
