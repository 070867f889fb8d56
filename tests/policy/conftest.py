from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write policy files, each below the two header lines (so that its own first line is line 3)."""

    def write(*bodies: str, **raw: bytes) -> Path:
        for name, body in zip("abc", bodies, strict=False):
            (tmp_path / f"{name}.yaml").write_text(HEADER + body)
        for name, content in raw.items():
            (tmp_path / f"{name}.yaml").write_bytes(content)
        return tmp_path

    return write
