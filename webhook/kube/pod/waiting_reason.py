"""Why a pod waits, as Fairgate writes it on the pod: a text for people, and its facts for programs.

Anyone who may change the pod may write there: what is read back is bounded, and is None where it is not as written.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.reason import Code, Reason, cause_of, waits_for
from webhook.core.model.statement import read_statement, statement_json
from webhook.core.model.text import printable, shortened
from webhook.kube.objects import keys

MAX_TEXT: Final = 1000
"""Characters of the text that says why a pod waits."""

MAX_FACTS: Final = 2000
"""Characters of its facts. More are not written."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    cause: dict[str, object]
    place: int = 0


class Waits(NamedTuple):
    """Why a pod waits, and its place in line when that was written, 0 where none was."""

    reason: Reason
    place: int = 0


def waits_of(reason: Reason) -> Waits:
    """Return why a pod waits by the reason of the decision that let it into the line."""
    place = reason.facts.get("place", 0)
    return Waits(Reason(reason.code, *cause_of(reason)), place if isinstance(place, int) else 0)


_decoder: Final = msgspec.json.Decoder(_Written)


def waiting_annotations(waits: Waits) -> dict[str, str | None]:
    """Return the annotations that say why a pod waits; None for one that is not to be there."""
    reason, place = waits
    cause = reason.statement
    facts = msgspec.json.encode(_Written(reason.code, statement_json(cause), place)).decode()
    text = shortened(waits_for(reason.code, cause, place=place).text, MAX_TEXT)
    return {keys.WAITING: text, keys.WAITING_FACTS: facts if len(facts) <= MAX_FACTS else None}


def read_waits(annotations: Mapping[str, str]) -> Waits | None:
    """Return why a pod waits, by its facts."""
    written = annotations.get(keys.WAITING_FACTS, "")
    if not 0 < len(written) <= MAX_FACTS:
        return None
    try:
        found = _decoder.decode(written)
        code = Code(found.code)
    except ValueError:  # of msgspec, too
        return None
    cause = read_statement(found.cause)
    return None if cause is None or found.place < 0 else Waits(Reason(code, *cause), found.place)


def waiting_text(annotations: Mapping[str, str]) -> str:
    """Return why a pod waits, as text."""
    return printable(annotations.get(keys.WAITING, "")[:MAX_TEXT])
