"""Releasing one waiting pod that meanwhile changes, ends or is replaced: over HTTP, one patch over what was judged."""

import asyncio
import json

import msgspec
import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Cut, Held
from tests.server.support.harness import until
from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.pod_writes import ReleaseResult, hold_in_line, release_pod, write_reason
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, NodeChoice
from webhook.core.model.policy import BUILT_IN_RESOURCES, Mode
from webhook.core.model.reasons import Code, Reason
from webhook.kube.objects import keys, objects
from webhook.kube.pod.waiting import MAX_TEXT, to_waiting

Y = Reason(Code.WAITS_IN_LINE, "y")

PODS = "/api/v1/pods"
DECISION = {
    "demand": {builders.GPU: "1"},
    "gpus": "1",
    "mode": "queue",
    "nodes": [],
    "code": "WaitsForLimit",
    "policy": "p1",
    "user": "alice",
    "at": "then",
}
FOREIGN = "example.com/gate"


def put(api, *, gates=(keys.QUEUE_GATE,), annotations=(), **more):
    """A gated pod on the API server, as the leader's watch showed it."""
    made = builders.pod(
        "p",
        namespace="team-a",
        gpus=1,
        labels={keys.TEAM: "a"},
        annotations={keys.DECISION: json.dumps(DECISION), keys.WAITING: "waits: x", **dict(annotations)},
        **more,
    )
    made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return seen(api.put(PODS, "p", namespace="team-a", **made))


def seen(found):
    return to_waiting(msgspec.json.decode(msgspec.json.encode(found), type=objects.Pod), BUILT_IN_RESOURCES)


def stored(api):
    return api.objects[PODS]["team-a/p"]


def changed(api, **annotations):
    """Another writer changes the pod; None removes an annotation."""
    now = stored(api)
    found = now["metadata"]["annotations"] | annotations
    metadata = now["metadata"] | {"annotations": {key: value for key, value in found.items() if value is not None}}
    api.put(PODS, "p", namespace="team-a", **(now | {"metadata": metadata}))


async def release(connection, waiting, *, seen=None, is_leading=lambda: True):
    charge = Charge(TeamName("a"), Tier.GUARANTEED, 1)
    choice = NodeChoice(Mode.AUTO, (NodeName("n1"),))
    admit = Admit(charge, waiting.pod.demand, choice, Reason(Code.WITHIN_SHARE, "why"), "p2")
    return await release_pod(
        connection, waiting, admit, seen=seen, now_text="now", weights=BUILT_IN_RESOURCES, is_leading=is_leading
    )


async def test_one_patch_removes_the_gate_and_writes_the_decision(api, connection):
    assert await release(connection, put(api)) is ReleaseResult.DONE
    pod = stored(api)
    assert pod["spec"]["schedulingGates"] == []
    assert pod["metadata"]["labels"] == {keys.TEAM: "a", keys.TIER: "guaranteed"}
    assert keys.WAITING not in pod["metadata"]["annotations"]
    assert '"policy":"p2"' in pod["metadata"]["annotations"][keys.DECISION]
    assert "n1" in json.dumps(pod["spec"]["affinity"])
    assert api.count("patch") == 1


class TestAPodThatTheWatchShows:
    async def test_is_released_by_one_request(self, api, connection):
        waiting = put(api)
        assert await release(connection, waiting, seen=waiting) is ReleaseResult.DONE
        assert (api.count("get"), api.count("patch")) == (0, 1)
        pod = stored(api)
        assert pod["spec"]["schedulingGates"] == []
        assert pod["metadata"]["labels"] == {keys.TEAM: "a", keys.TIER: "guaranteed"}
        assert keys.WAITING not in pod["metadata"]["annotations"]
        assert "n1" in json.dumps(pod["spec"]["affinity"])

    async def test_is_released_by_one_request_also_where_it_is_newer_than_what_was_judged(self, api, connection):
        waiting = put(api)
        changed(api, heartbeat="7")
        assert await release(connection, waiting, seen=seen(stored(api))) is ReleaseResult.DONE
        assert (api.count("get"), api.count("patch")) == (0, 1)

    @pytest.mark.parametrize(
        "annotations",
        [{"heartbeat": "7"}, {keys.WAITING: None}],
        ids=["is another version", "lacks what the patch removes"],
    )
    async def test_is_released_by_one_request_where_its_owner_wrote_since(self, api, connection, annotations):
        waiting = put(api)
        changed(api, **annotations)
        assert await release(connection, waiting, seen=waiting) is ReleaseResult.DONE
        assert (api.count("get"), api.count("patch")) == (0, 1)
        assert stored(api)["metadata"]["annotations"].get("heartbeat") == annotations.get("heartbeat")
        assert keys.WAITING not in stored(api)["metadata"]["annotations"]

    async def test_is_read_where_its_decision_changed_since(self, api, connection):
        waiting = put(api)
        await hold_in_line(connection, waiting)
        reads, patches = api.count("get"), api.count("patch")
        assert await release(connection, waiting, seen=waiting) is ReleaseResult.DONE
        assert (api.count("get") - reads, api.count("patch") - patches) == (1, 2)

    async def test_is_judged_again_where_it_asks_for_something_else_since(self, api, connection):
        waiting = put(api)
        now = stored(api)
        api.put(PODS, "p", namespace="team-a", **(now | {"spec": now["spec"] | {"nodeSelector": {"zone": "b"}}}))
        for watched in (waiting, seen(stored(api))):
            assert await release(connection, waiting, seen=watched) is ReleaseResult.CHANGED
        assert stored(api)["spec"]["schedulingGates"]

    async def test_is_gone_where_it_was_deleted_since(self, api, connection):
        waiting = put(api)
        api.delete(PODS, "p", namespace="team-a")
        assert await release(connection, waiting, seen=waiting) is ReleaseResult.GONE

    async def test_is_not_released_by_a_former_leader(self, api, connection):
        waiting = put(api)
        with pytest.raises(ClusterError, match="is no longer the leader"):
            await release(connection, waiting, seen=waiting, is_leading=lambda: False)
        assert api.count("patch") == 0

    async def test_is_refused_for_what_it_is_once_it_was_read(self, api, connection):
        waiting = put(api)
        api.always["patch"] = Answer(422)
        with pytest.raises(ApiError, match="422"):
            await release(connection, waiting, seen=waiting)
        assert (api.count("get"), api.count("patch")) == (1, 2)


async def test_gates_of_others_stay(api, connection):
    assert await release(connection, put(api, gates=("a.com/x", keys.QUEUE_GATE, FOREIGN))) is ReleaseResult.DONE
    assert stored(api)["spec"]["schedulingGates"] == [{"name": "a.com/x"}, {"name": FOREIGN}]


async def test_a_pod_without_the_gate_was_released_already(api, connection):
    waiting = put(api)
    stored(api)["spec"]["schedulingGates"] = []
    assert await release(connection, waiting) is ReleaseResult.ALREADY
    assert api.count("patch") == 0


async def test_a_release_whose_answer_was_lost_is_found_the_next_time(api, connection):
    waiting = put(api)
    api.faults["patch"].append(Cut(is_carried_out=True))
    with pytest.raises(ClusterError):
        await release(connection, waiting)
    assert await release(connection, waiting) is ReleaseResult.ALREADY


@pytest.mark.parametrize(
    "change",
    [
        lambda api: api.delete(PODS, "p", namespace="team-a"),
        lambda api: stored(api)["metadata"].update(uid="another"),
        lambda api: stored(api)["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["was deleted", "is another one", "is being deleted"],
)
async def test_a_pod_that_is_gone_is_not_touched(api, connection, change):
    waiting = put(api)
    change(api)
    assert await release(connection, waiting) is ReleaseResult.GONE
    assert api.count("patch") == 0


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"schedulingGates": [{"name": keys.QUEUE_GATE}, {"name": FOREIGN}]},
    ],
    ids=["its selector", "its tolerations", "its gates"],
)
async def test_a_pod_that_asks_for_something_else_is_judged_again(api, connection, spec):
    waiting = put(api)
    now = stored(api)
    api.put(PODS, "p", namespace="team-a", **(now | {"spec": now["spec"] | spec}))
    assert await release(connection, waiting) is ReleaseResult.CHANGED
    assert api.count("patch") == 0


async def test_a_pod_that_cannot_be_read_any_more_is_judged_again(api, connection):
    waiting = put(api)
    changed(api, **{keys.REQUIRES: "x" * 5000})
    assert await release(connection, waiting) is ReleaseResult.CHANGED


async def test_annotations_that_decide_nothing_may_change_all_the_time(api, connection):
    waiting = put(api)
    changed(api, heartbeat="7", **{keys.WAITING: "waits: another cause"})
    assert await release(connection, waiting) is ReleaseResult.DONE
    assert stored(api)["metadata"]["annotations"]["heartbeat"] == "7"


async def test_a_release_that_was_sent_before_the_charge_was_taken_back_does_not_follow(api, connection):
    waiting, late = put(api), Held()
    api.faults["patch"].append(late)
    releasing = asyncio.create_task(release(connection, waiting))
    await until(lambda: api.count("patch"))
    await hold_in_line(connection, waiting)
    late.go.set()
    with pytest.raises(ApiError, match="422"):
        await releasing
    assert stored(api)["spec"]["schedulingGates"] == [{"name": keys.QUEUE_GATE}]


async def test_a_former_leader_writes_nothing(api, connection):
    waiting = put(api)
    with pytest.raises(ClusterError, match="is no longer the leader"):
        await release(connection, waiting, is_leading=lambda: False)
    assert api.count("patch") == 0


async def test_an_answer_that_is_no_pod_is_an_error(api, connection):
    waiting = put(api)
    stored(api)["spec"] = "nothing"
    with pytest.raises(ClusterError, match="not an object that can be read"):
        await release(connection, waiting)


class TestTheReason:
    async def test_is_written_by_one_request_whatever_its_owner_wrote_since(self, api, connection):
        waiting = put(api)
        changed(api, heartbeat="7", **{keys.WAITING: None})
        assert await write_reason(connection, waiting, Y)
        annotations = stored(api)["metadata"]["annotations"]
        assert (annotations[keys.WAITING], annotations["heartbeat"]) == ("waits: y", "7")
        assert (api.count("get"), api.count("patch")) == (0, 1)

    async def test_is_bounded(self, api, connection):
        waiting = put(api)
        await write_reason(connection, waiting, Reason(Code.WAITS_IN_LINE, "x" * 5000))
        assert len(stored(api)["metadata"]["annotations"][keys.WAITING]) <= MAX_TEXT

    async def test_does_not_come_after_a_release_that_was_sent_meanwhile(self, api, connection):
        waiting = put(api)
        assert await release(connection, waiting, seen=waiting) is ReleaseResult.DONE
        assert not await write_reason(connection, waiting, Reason(Code.WAITS_IN_LINE, "late"))
        assert keys.WAITING not in stored(api)["metadata"]["annotations"]

    async def test_is_not_written_on_another_pod_of_the_name_or_on_none(self, api, connection):
        waiting = put(api)
        stored(api)["metadata"]["uid"] = "another"
        await write_reason(connection, waiting, Y)
        assert stored(api)["metadata"]["annotations"][keys.WAITING] == "waits: x"
        api.delete(PODS, "p", namespace="team-a")
        await write_reason(connection, waiting, Y)


async def test_a_pod_that_is_held_has_another_version_and_no_earlier_patch_applies(api, connection):
    waiting = put(api)
    version = await hold_in_line(connection, waiting)
    assert str(version) == stored(api)["metadata"]["resourceVersion"] != waiting.version
    assert stored(api)["spec"]["schedulingGates"] == [{"name": keys.QUEUE_GATE}]


async def test_a_pod_that_its_owner_changes_while_it_is_held_is_held_by_one_patch(api, connection):
    waiting, held = put(api), Held()
    api.faults["patch"].append(held)
    holding = asyncio.create_task(hold_in_line(connection, waiting, Y))
    await until(lambda: not api.faults["patch"])
    changed(api, other="x")
    held.go.set()
    assert await holding == int(stored(api)["metadata"]["resourceVersion"])
    assert api.count("patch") == 1


async def test_a_pod_that_starts_while_it_is_held_keeps_its_charge(api, connection):
    waiting, held = put(api), Held()
    api.faults["patch"].append(held)
    holding = asyncio.create_task(hold_in_line(connection, waiting, Y))
    await until(lambda: not api.faults["patch"])
    assert await release(connection, waiting, seen=waiting) is ReleaseResult.DONE
    held.go.set()
    assert await holding is None
    assert keys.WAITING not in stored(api)["metadata"]["annotations"]


async def test_a_pod_without_its_gate_is_not_written_to(api, connection):
    waiting = put(api)
    stored(api)["spec"]["schedulingGates"] = []
    assert await hold_in_line(connection, waiting, Y) is None
    assert api.count("patch") == 0


@pytest.mark.parametrize("is_deleted", [True, False], ids=["was deleted", "is being deleted"])
async def test_a_pod_that_is_gone_is_not_held(api, connection, is_deleted):
    waiting = put(api)
    if is_deleted:
        api.delete(PODS, "p", namespace="team-a")
    else:
        stored(api)["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")
    assert await hold_in_line(connection, waiting, Y) == 0
    assert api.count("patch") == 0


async def test_a_hold_that_is_refused_says_so(api, connection):
    waiting = put(api)
    api.faults["patch"].append(Answer(403))
    with pytest.raises(ApiError):
        await hold_in_line(connection, waiting, Y)
