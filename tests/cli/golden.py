"""Printed output against what is kept; `GOLDEN=write pytest` renews it, and git shows what changed."""

import os
from pathlib import Path


def check(file: Path, told: str) -> None:
    """Compare with the file, or write it."""
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(told, encoding="utf-8")
    assert told == file.read_text(encoding="utf-8")
