"""The evictor evicts no pod for room on a node that rejects the waiting team's pods."""

import asyncio

from tests.evictor.support.stage import PODS
from webhook.core.placement.rejecting_nodes import STRIKES
from webhook.kube.nodes.holds import rfc3339


def rejected(stage, on):
    """Have a node reject pods of team-b just now."""
    for number in range(STRIKES):
        name = f"rejected-{number}"
        stage.asker(name, gpus=4, node=on)
        pod = stage.api.objects[PODS][f"team-b/{name}"]
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": rfc3339(int(stage.now()))}
        stage.api.keep(PODS, f"team-b/{name}", {**pod, "status": status})


async def test_room_is_made_on_another_node(stage):
    stage.node("n0")
    stage.node("n1")
    stage.borrower("a0", on="n0", gpus=4)  # the first by name of two equal ones
    stage.borrower("a1", on="n1", gpus=4)
    rejected(stage, "n0")
    async with stage.leader():
        stage.asker("b", gpus=4)
        stage.find_no_room("b")
        await stage.until(lambda: stage.real_evictions() == 1)
    assert "a0" in stage.names()
    assert "a1" not in stage.names()


async def test_none_is_made_where_every_node_rejects_them(stage):
    stage.node("n0")
    stage.borrower("a0", on="n0", gpus=4)
    rejected(stage, "n0")
    async with stage.leader():
        stage.asker("b", gpus=4)
        stage.find_no_room("b")
        await asyncio.sleep(30)  # of the test's virtual time: many looks
        assert stage.real_evictions() == 0
    assert "a0" in stage.names()
