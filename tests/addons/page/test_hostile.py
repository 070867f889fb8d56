"""A hostile tenant's 100,000 pods with long names: every view answers in time, and within what a browser takes."""

import time
from dataclasses import replace

import msgspec
import pytest

from tests import builders as b
from tests.addons.page.support.pages import named, served, state_of, waiting
from tests.core.support import make
from webhook.core.model.amounts import NodeName
from webhook.core.model.pod import Owner
from webhook.kube.objects import objects
from webhook.kube.pod.waiting import to_waiting

pytestmark = pytest.mark.slow

PODS = 100_000
VIEWS = [
    "/",
    "/teams",
    "/queue",
    "/decisions",
    "/decisions?q=nothing",
    "/search?q=xxxy",
    "/search?q=x",
    "/map.json",
    "/moves",
]


@pytest.fixture(scope="module")
def site():
    state = state_of(named([b.node("gpu-1", gpus=8), b.pod("honest", node="gpu-1", gpus=1), waiting("patient")]))
    world = state.world
    template = make.resident(1, namespace="hostile", tier="preemptible", owner=Owner("Job", "y" * 200))
    for number in range(PODS // 2):
        uid = f"h{number}"
        pod = template._replace(uid=uid, name=f"{'x' * 240}{number}", node=NodeName(f"gpu-{number % 900}"))
        world.set_pod(pod)
    gated = waiting("w", namespace="hostile", gpus=1)
    decoded = msgspec.json.decode(msgspec.json.encode(gated), type=objects.Pod)
    first = to_waiting(decoded, world.policy.resources)
    for number in range(PODS // 2):
        pod = first.pod._replace(uid=f"w{number}", name=f"{'x' * 240}w{number}")
        world.set_waiting(replace(first, pod=pod))
    state.touch_all()
    with served(state) as found:
        found.enter()
        yield found


@pytest.mark.parametrize("path", VIEWS)
def test_every_view_answers_with_what_a_browser_takes_and_holds_no_other_up(site, path):
    began = site.call(time.thread_time)
    status, body = site.get(path)
    assert status == 200
    assert len(body) < 6_000_000
    spent = site.call(time.thread_time) - began
    assert spent < 1, "processor time of the one loop"


def test_an_honest_pod_is_still_found_and_explained(site):
    assert "vision/honest" in site.get("/search?q=honest")[1]
    assert site.get("/explain?namespace=vision&name=honest")[0] == 200
