"""Serializes data as JSON or YAML."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from webhook import yaml_writer
from webhook.cli.options import Layout

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def to_json(data: object) -> str:
    """Return data as JSON, indented by two spaces."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def to_yaml(data: object) -> str:
    """Return data as YAML."""
    return yaml_writer.to_yaml(msgspec.to_builtins(data), width=120)


def as_data(layout: Layout, report: Callable[[], object]) -> str:
    """Return a report as JSON or YAML; "" in layouts for people, for which it is not made."""
    writers = {Layout.JSON: to_json, Layout.YAML: to_yaml}
    return writers[layout](report()) if layout in writers else ""


def schema_of(data: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, list[T] included
    """Return the JSON Schema (draft 2020-12) of a type."""
    return {"$schema": DIALECT, **msgspec.json.schema(data)}
