"""Search: by pod, owner, user and node; plain text, bounded, and only what a viewer may see."""

import time

import pytest

from tests import builders as b
from tests.addons.page.support.pages import decided, named, state_of, waiting
from webhook.addons.page.views.decisions import MOST, search
from webhook.addons.page.views.teams import EVERYTHING, Viewer


@pytest.fixture(scope="module")
def world():
    return state_of().world


def names(query, world, viewer=EVERYTHING):
    return [hit.name for hit in search(query, world, viewer)]


def test_a_part_of_a_name_finds_pods_their_owners_and_nodes(world):
    assert names("TRAIN", world) == ["train-0", "train-1", "train-2"]
    assert {hit.matched for hit in search("gpu-10", world, EVERYTHING)} == {"node"}
    assert {hit.matched for hit in search("job/sweep", world, EVERYTHING)} == {"owner"}
    [waits] = search("latest", world, EVERYTHING)
    assert (waits.state, waits.gpus) == ("waits in line", "8")
    assert search("next", world, EVERYTHING)[0].state == "waits for a node"


def test_users_are_found(world):
    state = state_of(named([decided(b.pod("p")), waiting("w")]))
    assert [(hit.name, hit.matched) for hit in search("ALIC", state.world, EVERYTHING)] == [
        ("w", "user"),
        ("p", "user"),
    ]
    assert names("nobody", state.world) == []
    assert names("", world) == names("   ", world) == []


def test_a_viewer_finds_only_pods_that_they_may_see(world):
    found = search("a", world, Viewer("n", frozenset({"nlp"})))
    assert {hit.namespace for hit in found} == {"nlp"}
    assert {hit.name for hit in found} >= {"later", "latest", "half", "chat"}
    assert names("train", world, Viewer("n", frozenset({"nlp"}))) == []


def test_patterns_are_plain_text_and_take_no_time():
    many = named([b.pod(f"{'a' * 200}-{number}", gpus=1) for number in range(2000)])
    world = state_of(many).world
    start = time.process_time()
    assert search("(a+)+$", world, EVERYTHING) == []
    assert len(search("a", world, EVERYTHING)) == MOST
    search("x" * 10**6, world, EVERYTHING)
    assert time.process_time() - start < 1
