"""Data as text: JSON for machines, YAML for machines that people read over the shoulder of."""

import msgspec
import yaml


def to_json(data: object) -> str:
    """Write data as JSON, two spaces deep."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def to_yaml(data: object) -> str:
    """Write data as YAML."""
    return yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, width=120, allow_unicode=True)
