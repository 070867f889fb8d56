"""Pytest plugin: how the tests are spread over the workers of pytest-xdist, which `make test` starts."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

APART = frozenset({"tests/docs/test_walk.py"})
"""Files whose tests share nothing but a worker's control plane, and of which each takes long."""


class FilesInOrder(LoadFileScheduling):
    """Hands out whole files, whose tests may share what is expensive to start, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file in APART else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesInOrder:
    """Take the place of xdist's own choice by `--dist`."""
    config.option.loadscopereorder = False  # the number of tests of a file is not their duration
    return FilesInOrder(config, log)
