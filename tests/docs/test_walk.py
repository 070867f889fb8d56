"""Every command of the documentation runs, in the order of its page, and prints what the page shows."""

import re

import pytest

from tests.charts.installed import forget
from tests.docs import pages
from tests.docs.elsewhere import NOT_HERE
from tests.docs.preloaded import stand_ins
from tests.docs.stages import STAGES
from tests.docs.walk import Reader

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LANGUAGES = {"", "console", "json", "mermaid", "promql", "sh", "yaml"}


def commands(page):
    return [found.command for found in pages.script(page) if isinstance(found, pages.Step)]


WALKED = [page for page in pages.PAGES if any(command not in NOT_HERE for command in commands(page))]


@pytest.fixture
def nothing_left(control_plane):
    """What other tests made is wholly gone before `cluster` looks what there is: pages use names of their own."""
    forget(control_plane)
    control_plane.api.delete(LEASES)  # of servers that were not given the time to give them back


@pytest.fixture(scope="module")
def fairgate(tmp_path_factory):
    with stand_ins(tmp_path_factory.mktemp("fairgate")) as programs:
        yield programs


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
@pytest.mark.parametrize("page", WALKED, ids=pages.name)
def test_the_page_shows_what_happens(page, nothing_left, cluster, fairgate, tmp_path):  # noqa: ARG001  it must come first
    prepare = STAGES[pages.name(page)]
    with Reader(tmp_path, cluster=cluster, fairgate=fairgate) as reader:
        prepare(reader)
        reader.follow(page)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_no_command_hides_from_the_walk(page):
    text = page.read_text()
    assert not re.findall(r"^[ \t]+```", text, flags=re.MULTILINE), "blocks that are indented are not found"
    for block in pages.blocks(page):
        assert block.language in LANGUAGES
        assert block.language in pages.SHELL or not re.search(r"^\$ ", block.text, flags=re.MULTILINE)


def test_what_is_run_elsewhere_is_still_on_a_page():
    assert set(NOT_HERE) <= {command for page in pages.PAGES for command in commands(page)}


def test_every_stage_is_of_a_page_that_is_walked():
    assert set(STAGES) == set(map(pages.name, WALKED))
