"""Recorded usage on the wire: how a server sends rows to `fairgate usage`. Fields that are not known are left out."""

from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.history.schema import FORMAT, HistoryError
from webhook.history.usage_row import INTERVAL_SECONDS, Recording, UsageKey, UsageKind, UsageRow

MAX_STEPS: Final = 400
"""Steps of an answer: a longer range has longer steps, each of whole intervals."""
MAX_ROWS: Final = 200_000
_AT_ONCE: Final = 500
_KINDS: Final = frozenset(UsageKind)


class _Row(msgspec.Struct, frozen=True, gc=False):
    start: int
    kind: str
    team: str = ""
    user: str = ""
    model: str = ""
    amount: float = 0.0
    department: str = ""


class _Answer(msgspec.Struct, frozen=True):
    format: int
    rows: list[_Row] = []


def step_seconds(since: float, until: float) -> int:
    """Return the step of an answer for a time range."""
    intervals = max(1, -int(-(until - since) // INTERVAL_SECONDS))
    return INTERVAL_SECONDS * -(-intervals // MAX_STEPS)


def encode(rows: Iterable[UsageRow]) -> bytes:
    """Return the answer with these rows; encoded in parts, so that a thread that does it holds the others up little."""
    parts, part = [], []
    for row in rows:
        part.append(_Row(row.start, *row.key, row.amount, row.department))
        if len(part) == _AT_ONCE:
            parts.append(msgspec.json.encode(part)[1:-1])
            part = []
    if part:
        parts.append(msgspec.json.encode(part)[1:-1])
    return b'{"format":%d,"rows":[%s]}' % (FORMAT, b",".join(parts))


def decode(body: bytes, *, name: str) -> Recording:
    """Return the rows of an answer. Raises HistoryError."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HistoryError(f"{name} did not answer with a history: {error}") from error
    if answer.format > FORMAT:
        raise HistoryError(f"{name} answers in format {answer.format}, and this version reads up to {FORMAT}")
    return Recording(
        name,
        tuple(
            UsageRow(
                row.start, UsageKey(UsageKind(row.kind), row.team, row.user, row.model), row.amount, row.department
            )
            for row in answer.rows
            if row.kind in _KINDS
        ),
    )
