"""Serializes data as JSON or YAML."""

from typing import Any, Final

import msgspec

from webhook import yaml_writer
from webhook.cli.options import Layout
from webhook.core.model.text import escaped

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def to_json(data: object) -> str:
    """Return data as JSON, indented by two spaces; what a terminal would not show as it is, is escaped."""
    return escaped(msgspec.json.format(msgspec.json.encode(data), indent=2).decode(), escape=_json_escape) + "\n"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))


def to_yaml(data: object) -> str:
    """Return data as YAML."""
    return yaml_writer.to_yaml(msgspec.to_builtins(data), width=120)


def to_data(data: object, layout: Layout) -> str:
    """Return data in one of the layouts for programs."""
    return to_yaml(data) if layout is Layout.YAML else to_json(data)


def schema_of(data: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, list[T] included
    """Return the JSON Schema (draft 2020-12) of a type."""
    return {"$schema": DIALECT, **msgspec.json.schema(data)}
