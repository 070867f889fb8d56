"""The JSON Schema of policy files, for editors; published as policies/schema.json."""

from typing import Any, Final

from webhook.policy.schema import PolicyFile

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of policy files, draft 2020-12."""
    return {"$schema": DIALECT, **_without_null(PolicyFile.model_json_schema(by_alias=True, mode="validation"))}


def _without_null(node: Any) -> Any:  # noqa: ANN401 - JSON
    """Remove the null that pydantic allows for optional fields: an empty field is an error (see validate.py)."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _without_null(value) for key, value in node.items() if value is not None}
    members = kept.get("anyOf")
    if isinstance(members, list) and {"type": "null"} in members:
        rest = [member for member in members if member != {"type": "null"}]
        del kept["anyOf"]
        kept |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    return kept
