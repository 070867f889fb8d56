"""A reason as data, in every `-o json` that has reasons."""

from typing import Annotated, Any

import msgspec

from webhook.core.model.reason import Reason
from webhook.core.model.statement import facts_json

Facts = Annotated[
    dict[str, Any],
    msgspec.Meta(description="what the text says, by name; amounts of GPUs are texts, as in 2, 0.5 or 3/7"),
]


class ReasonReport(msgspec.Struct):
    """One reason, with its stable code and its facts."""

    code: str
    message: str
    facts: Facts

    @classmethod
    def of(cls, reason: Reason) -> "ReasonReport":
        """Return a reason as data."""
        return cls(reason.code, reason.text, facts_json(reason.statement))
