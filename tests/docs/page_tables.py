"""Generates tables on written pages: policy fields from the schema, kinds from their rows, packages from docstrings.

`python -m tests.docs.page_tables` renews them; a test compares.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.docs import pages
from webhook.kube.kinds.table import BUILT_IN
from webhook.policy.schema import json_schema

Json = dict[str, Any]

FIELDS: Final = pages.ROOT / "policies" / "README.md"
KINDS: Final = pages.ROOT / "docs" / "reference" / "kinds.md"
PACKAGES: Final = pages.ROOT / "docs" / "architecture.md"
_SCHEMA: Final[Json] = json_schema()
_TABLE: Final = re.compile(r"(^#{2,3} `(\w+)`[^\n]*\n(?:(?!\||#).*\n)*)((?:\|.*\n)+)", re.MULTILINE)
_HEAD: Final = "| field | type, default | meaning |\n|---|---|---|\n"
_WHOLE: Final = {"Selector": "label selector", "Expression": "condition", "Toleration": "toleration"}
"""Values that Kubernetes defines, and that are described once, below the tables."""
_TYPES: Final = {"string": "text", "integer": "number", "number": "number", "boolean": "`true` or `false`"}


def kinds(text: str) -> str:
    """Return the page of kinds with its first table as the rows of the code are."""
    alike: dict[tuple[str, bool, str], list[str]] = {}
    for row in BUILT_IN:
        versions = f"{row.kind.group or 'core'}/{','.join(row.versions)}"
        alike.setdefault((versions, row.kind.is_gang, row.description), []).append(f"`{row.kind.kind}`")
    rows = "".join(
        f"| {', '.join(names)}{', gang' if is_gang else ''} | {versions} | {description} |\n"
        for (versions, is_gang, description), names in alike.items()
    )
    return _first_table(text, "| kind | versions | pods |\n|---|---|---|\n" + rows)


def packages(text: str) -> str:
    """Return the page of the architecture with its first table as the docstrings of packages are, without layers."""
    found = sorted((pages.ROOT / "webhook").glob("*/*/**/__init__.py"))
    documented = {path: ast.get_docstring(ast.parse(path.read_text())) for path in found}
    rows = "".join(
        f"| `{path.parent.relative_to(pages.ROOT)}/` | {' '.join(doc.split())} |\n"
        for path, doc in documented.items()
        if doc and "cli" not in path.parts[-4:-2] and not {"page", "simulation", "server"} & {path.parts[-3]}
    )
    return _first_table(text, "| package | does |\n|---|---|\n" + rows)


def _first_table(text: str, table: str) -> str:
    return re.sub(r"(?:^\|.*\n)+", lambda _: table, text, count=1, flags=re.MULTILINE)


def fields(text: str) -> str:
    """Return the page of policy fields with its tables as the schema has them."""
    return _TABLE.sub(lambda found: found[1] + _HEAD + "".join(_rows(_section(found[2]))), text)


def _section(name: str) -> Json:
    if name == "policy":
        plain = {field: found for field, found in _SCHEMA["properties"].items() if _fields(found) is None}
        return {**_SCHEMA, "properties": plain}
    return _fields(_SCHEMA["properties"][name]) or {}


def _rows(spec: Json, prefix: str = "") -> Iterator[str]:
    for field, found in spec["properties"].items():
        inner = None if field == "idle" else _fields(found)
        of_many = found.get("type") == "array" or (prefix == "" and field == "models")
        if inner is None or of_many or prefix.count(".") > 1:
            meaning = found.get("description") or (inner and inner.get("description")) or ""
            meaning = re.sub(r"[;.] [Oo]r the word unlimited", "", meaning)  # its type says it
            kind = _kind(found, is_required=field in spec.get("required", ()))
            yield f"| `{prefix}{field}` | {kind} | {meaning.replace('|', chr(92) + '|')} |\n"
        if inner is not None and field != "models":
            yield from _rows(inner, f"{prefix}{field}.")


def _fields(found: Json) -> Json | None:
    """Return the object of which a field has one or several, if it is described by fields of its own."""
    for inner in (found, found.get("items", {}), found.get("additionalProperties", {})):
        name = inner.get("$ref", "").rpartition("/")[2] if isinstance(inner, dict) else ""
        if name and name not in _WHOLE and "properties" in _SCHEMA["$defs"][name]:
            return dict(_SCHEMA["$defs"][name])
    return None


def _kind(found: Json, *, is_required: bool) -> str:
    name = found.get("$ref", "").rpartition("/")[2]
    words = _SCHEMA["$defs"][name].get("enum") if name in _SCHEMA["$defs"] else None
    bounds = [f"{word} {found[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in found]
    kind = _WHOLE.get(name) or _words(words) or _union(found.get("anyOf", ())) or _plain(found)
    default = _default(found.get("default"), is_time=kind.startswith("duration"))
    default = default.replace("`", "%`")[1:] if kind == "percentage" else default
    return "; ".join(filter(None, [" ".join([kind, *bounds]), "required" if is_required else default]))


def _words(words: list[str] | None) -> str:
    return ", ".join(f"`{word}`" for word in words) if words else ""


def _union(options: list[Json]) -> str:
    text = str(options)
    if not options:
        return ""
    marks = {"exclusiveMinimum": "number above 0", "(h|m|s)": "duration", "%": "percentage", "/[1-9]": "GPUs"}
    kind = next((kind for mark, kind in marks.items() if mark in text), "amount")
    return f"{kind} or `unlimited`" if "unlimited" in text else kind


def _plain(found: Json) -> str:
    if found.get("type") == "array":
        return "list"
    if found.get("type") == "object" or "properties" in found:
        return "mapping"
    return f"`{found['const']}`".lower() if found.get("const") is True else _TYPES.get(found.get("type", ""), "mapping")


def _default(value: object, *, is_time: bool) -> str:
    if value is None or value in ([], {}, "") or isinstance(value, dict | list):
        return ""
    if is_time and isinstance(value, int):
        return f"`{value // 3600}h`" if value and value % 3600 == 0 else f"`{value // 60}m`" if value else "`0s`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


TABLES: Final[dict[Path, Callable[[str], str]]] = {FIELDS: fields, KINDS: kinds, PACKAGES: packages}
"""The pages, each with what renews it."""


if __name__ == "__main__":
    for page, table in TABLES.items():
        page.write_text(table(page.read_text()))
