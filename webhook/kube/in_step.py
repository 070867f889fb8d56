"""What a registered object owes to the policy, brought in line; the rest stays as whoever made it said."""

from typing import Any, Final

_Json = dict[str, Any]

_OF_POLICY: Final = ("rules", "matchConditions", "namespaceSelector")
"""Whom a webhook is asked about. How, when and by whom it is trusted is not the policy's to say."""


def in_step(found: _Json, wanted: _Json) -> _Json:
    """Give the object found with the parts that the wanted one has from the policy; webhooks are told by name."""
    by_name = {webhook["name"]: webhook for webhook in wanted["webhooks"]}

    def adjusted(webhook: _Json) -> _Json:
        said = by_name.get(webhook["name"], {})
        return {**webhook, **{part: said[part] for part in _OF_POLICY if part in said}}

    return {**found, "webhooks": [adjusted(webhook) for webhook in found.get("webhooks") or ()]}
