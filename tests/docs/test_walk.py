"""Every command of the documentation runs, in the order of its page, and prints what the page shows."""

import re
import sys
import time

import pytest

from tests.charts.installed import forget
from tests.docs import pages
from tests.docs.excluded import EXCLUDED_COMMANDS
from tests.docs.preloaded import stand_ins
from tests.docs.stages import STAGES
from tests.docs.walk import Reader

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LANGUAGES = {"", "bash", "console", "json", "mermaid", "promql", "python", "sh", "yaml"}


def commands(page):
    return [found.command for found in pages.script(page) if isinstance(found, pages.Step)]


WALKED = [page for page in pages.PAGES if any(command not in EXCLUDED_COMMANDS for command in commands(page))]


@pytest.fixture
def nothing_left(control_plane):
    """Other tests' objects are gone before `cluster` records what exists: pages use names of their own."""
    forget(control_plane)
    control_plane.api.delete(LEASES)  # of servers that were not given the time to give them back


@pytest.fixture(scope="module")
def fairgate(tmp_path_factory):
    with stand_ins(tmp_path_factory.mktemp("fairgate")) as programs:
        yield programs


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
@pytest.mark.parametrize("page", WALKED, ids=pages.name)
def test_the_page_shows_the_actual_output(page, nothing_left, cluster, fairgate, tmp_path):  # noqa: ARG001  it must come first
    prepare = STAGES[pages.name(page)]
    with Reader(tmp_path, cluster=cluster, fairgate=fairgate) as reader:
        prepare(reader)
        began = time.monotonic()
        done = reader.follow(page)
        sys.stdout.write(f"{len(done)} commands in {time.monotonic() - began:.0f} s\n")  # shown by `pytest -rP`
        assert done == [command for command in commands(page) if command not in EXCLUDED_COMMANDS]


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_command_is_run(page):
    text = page.read_text()
    assert not re.findall(r"^[ \t]+```", text, flags=re.MULTILINE), "blocks that are indented are not found"
    for block in pages.blocks(page):
        assert block.language in LANGUAGES
        assert block.language in pages.SHELL or not re.search(r"^\$ ", block.text, flags=re.MULTILINE)


def test_excluded_commands_are_still_on_a_page():
    assert set(EXCLUDED_COMMANDS) <= {command for page in pages.PAGES for command in commands(page)}


def test_every_stage_belongs_to_a_page_with_commands():
    assert set(STAGES) == set(map(pages.name, WALKED))
