"""Relabeling one pod that meanwhile changes, ends or is replaced."""

import asyncio

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Held
from tests.core.support import make
from tests.server.support.harness import until
from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.pod_writes import RelabelResult, relabel
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.kube.objects import keys

PODS = "/api/v1/pods"
RISEN = Charge(TeamName("a"), Tier.GUARANTEED, 1)


def put(api, **more):
    made = builders.pod("p", namespace="team-a", labels={keys.TEAM: "a", keys.TIER: "preemptible"}, **more)
    uid = api.put(PODS, "p", namespace="team-a", **made)["metadata"]["uid"]
    return make.resident(1, uid=uid, name="p", tier="preemptible")


async def raised(connection, pod, *, is_leading=lambda: True):
    return await relabel(connection, pod, RISEN, is_leading=is_leading)


def label(api):
    return api.objects[PODS]["team-a/p"]["metadata"]["labels"][keys.TIER]


async def test_a_label_is_written_once_and_then_found(api, connection):
    pod = put(api)
    assert await raised(connection, pod) is RelabelResult.DONE
    assert await raised(connection, pod) is RelabelResult.ALREADY
    assert (label(api), api.count("patch")) == ("guaranteed", 1)


async def test_what_its_owner_writes_meanwhile_is_not_in_the_way(api, connection):
    pod, held = put(api), Held()
    api.faults["patch"].append(held)
    raising = asyncio.create_task(raised(connection, pod))
    await until(lambda: api.count("patch"))
    stored = api.objects[PODS]["team-a/p"]
    api.put(PODS, "p", namespace="team-a", **(stored | {"metadata": stored["metadata"] | {"annotations": {"x": "1"}}}))
    held.go.set()
    assert await raising is RelabelResult.DONE
    assert (label(api), api.count("get"), api.count("patch")) == ("guaranteed", 1, 1)


async def test_a_pod_that_another_leader_changed_meanwhile_is_read_again(api, connection):
    pod = put(api)
    api.faults["patch"].append(Answer(422))
    assert await raised(connection, pod) is RelabelResult.DONE
    assert (api.count("get"), api.count("patch")) == (2, 2)


async def test_a_pod_that_keeps_changing_is_an_error_for_now(api, connection):
    pod = put(api)
    api.always["patch"] = Answer(409)
    with pytest.raises(ApiError, match="409"):
        await raised(connection, pod)
    assert api.count("patch") == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda api: api.delete(PODS, "p", namespace="team-a"),
        lambda api: api.objects[PODS]["team-a/p"]["metadata"].update(uid=Uid("another")),
        lambda api: api.objects[PODS]["team-a/p"]["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        lambda api: api.objects[PODS]["team-a/p"].update(status={"phase": "Failed"}),
    ],
    ids=["was deleted", "is another one", "is being deleted", "ended"],
)
async def test_a_pod_that_is_gone_is_not_touched(api, connection, change):
    pod = put(api)
    change(api)
    assert await raised(connection, pod) is RelabelResult.GONE
    assert api.count("patch") == 0


async def test_a_terminating_pod_without_a_team_gets_one(api, connection):
    pod = put(api)
    del api.objects[PODS]["team-a/p"]["metadata"]["labels"][keys.TEAM]
    api.objects[PODS]["team-a/p"]["metadata"]["deletionTimestamp"] = "2036-01-01T00:00:00Z"
    assert await raised(connection, pod) is RelabelResult.DONE


async def test_a_former_leader_writes_nothing(api, connection):
    pod = put(api)
    with pytest.raises(ClusterError, match="is no longer the leader"):
        await raised(connection, pod, is_leading=lambda: False)
    assert api.count("patch") == 0
