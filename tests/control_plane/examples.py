"""The example manifests in the modules of real operators, read from Go's module cache; none of them is copied."""

from __future__ import annotations

import functools
import re
import textwrap
from pathlib import Path
from typing import Any

from tests.control_plane.build import module_folder
from tests.control_plane.versions import Recipe
from webhook.kube.workloads.expand import flattened
from webhook.yaml_text import read_documents

_BLOCK = re.compile(r"^( *)```ya?ml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def examples(recipe: Recipe, path: str) -> list[Any]:
    """The objects in a file of a module; of a Markdown file, those in its YAML blocks."""
    file = _folder(recipe) / path
    if file.suffix != ".md":
        return list(flattened(read_documents(file.read_bytes())))
    blocks = [textwrap.dedent(block) for _, block in _BLOCK.findall(file.read_text()) if "\nkind: " in block]
    return [found for block in blocks for found in flattened(read_documents(block.encode()))]


@functools.cache
def _folder(recipe: Recipe) -> Path:
    return module_folder(recipe)
