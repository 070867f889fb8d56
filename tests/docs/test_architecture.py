"""The page for newcomers names functions that exist."""

import ast
import re
from functools import cache

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "architecture.md"
NAMED = sorted(set(re.findall(r"`([a-z]\w*)\.([A-Za-z]\w*)(?:\.(\w+))?`", pages.prose(PAGE))))


@cache
def trees(module):
    """Return the code of all modules of this name."""
    found = (path for folder in ("webhook", "certs") for path in (pages.ROOT / folder).rglob(f"{module}.py"))
    return [ast.parse(path.read_text()) for path in found]


def has(body, name, inner):
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return not inner or has(node.body, inner, "") or is_attribute(node, inner)
    return False


def is_attribute(owner, name):
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(owner))


def test_what_the_page_names_exists():
    assert [each for each in NAMED if not any(has(tree.body, *each[1:]) for tree in trees(each[0]))] == []
    assert len(NAMED) >= 40


def test_every_room_is_on_the_page():
    layers = (pages.ROOT / "webhook" / layer for layer in ("core", "kube", "cluster"))
    rooms = {f"`{each.parent.relative_to(pages.ROOT)}/`" for layer in layers for each in layer.glob("*/__init__.py")}
    assert {room for room in rooms if room not in PAGE.read_text()} == set()
