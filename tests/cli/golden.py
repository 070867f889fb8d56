"""Compares output with golden files; `GOLDEN=write pytest` rewrites them."""

import os
from pathlib import Path


def check(file: Path, output: str) -> None:
    """Compare with the file, or write it."""
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(output, encoding="utf-8")
    assert output == file.read_text(encoding="utf-8")
