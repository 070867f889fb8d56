"""Room for pods in line that the leader of the webhook has charged, against an API server."""

import asyncio
import json
from dataclasses import replace

from tests.core.support import make
from tests.core.support.waiting import waiting
from tests.evictor.support.line import in_line
from tests.evictor.support.stage import PODS, POOR, fill
from webhook.core.explain.team_rows import ledger_row
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Enforcement, ReclaimRules
from webhook.core.quota.charges import InFlightCharge, LedgerRecord
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.unevictable import TOGETHER_SECONDS
from webhook.kube.ledger.team_ledger import decode, encode
from webhook.kube.objects import keys

TEAM_LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"
B = TeamName("team-b")


def charge(stage, *uids, node="n0", takes_back=True, tier=Tier.GUARANTEED, gpus=1):
    """Write the ledger of team-b: these pods and no others are charged."""
    listed = {
        Uid(uid): InFlightCharge(
            make.resident(gpus, uid=uid, namespace=Namespace("team-b")),
            Charge(B, tier, make.gpus(gpus)),
            NodeName(node),
            takes_back=takes_back,
        )
        for uid in uids
    }
    body = json.loads(encode(LedgerRecord(listed), ledger_row(B, make.world(POOR)), version=0))
    stage.api.put(TEAM_LEDGERS, "team-b", **body)


def tolerates(stage, name="b"):
    return [each["value"] for each in stage.tolerations(name) if each["key"] == keys.HELD]


def starts(stage, name="b", *, on="n0"):
    """Do what the leader and kube-scheduler do."""
    pod = stage.api.objects[PODS][f"team-b/{name}"]
    labels = {**pod["metadata"]["labels"], keys.TIER: "guaranteed"}
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"} | {"nodeName": on}
    stage.api.keep(PODS, f"team-b/{name}", {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec})


async def test_a_node_keeps_the_room_of_a_charged_pod_which_tolerates_its_taint_before_anything_is_evicted(stage):
    fill(stage, "n0")
    async with stage.leader():
        uid = in_line(stage)
        await asyncio.sleep(20)
        assert (stage.real_evictions(), stage.taints("n0")) == (0, []), "it is not charged"
        charge(stage, uid)
        await stage.until(lambda: stage.real_evictions() == 1)
        (taint,) = stage.taints("n0")
        assert tolerates(stage) == [taint["value"]]
        assert stage.locked() == {"n0": [uid]}
        asked = [(each.verb, each.path) for each in stage.api.asked]
        to_tolerate = asked.index(("patch", "/api/v1/namespaces/team-b/pods/b"))
        assert to_tolerate < next(n for n, (_, path) in enumerate(asked) if path.endswith("/eviction"))
        await asyncio.sleep(20)
        assert stage.real_evictions() == 1
        starts(stage)
        charge(stage)
        await stage.until(lambda: not stage.taints("n0"))
        assert stage.real_evictions() == 1


async def test_a_pod_with_tolerations_of_its_own_keeps_them(stage):
    fill(stage, "n0")
    own = {"key": "gold", "operator": "Exists"}
    async with stage.leader():
        charge(stage, in_line(stage, tolerations=[own]))
        await stage.until(lambda: stage.real_evictions() == 1)
    assert stage.tolerations("b")[0] == own
    assert len(tolerates(stage)) == 1


async def test_room_is_made_for_a_gang_whole_and_only_once_all_of_it_is_charged(stage):
    fill(stage, "n0", "n1", "n2")
    async with stage.leader():
        uids = [in_line(stage, name, 4, whole=2) for name in ("b0", "b1")]
        charge(stage, uids[0], gpus=4)
        await asyncio.sleep(0.1)
        assert (stage.real_evictions(), tolerates(stage, "b0")) == (0, []), "the next write may charge the others"
        charge(stage, *uids, gpus=4)
        await stage.until(lambda: stage.real_evictions() == 8)
        assert all(len(tolerates(stage, name)) == 1 for name in ("b0", "b1"))
        await asyncio.sleep(20)
        assert stage.real_evictions() == 8


async def test_nothing_is_evicted_for_a_gang_that_finds_room_for_a_part_alone(stage):
    fill(stage, "n0")
    async with stage.leader():
        charge(stage, *(in_line(stage, name, 4, whole=2) for name in ("b0", "b1")), gpus=4)
        await asyncio.sleep(20)
        assert (stage.real_evictions(), tolerates(stage, "b0"), tolerates(stage, "b1")) == (0, [], [])


async def test_nothing_is_evicted_for_a_charge_that_needs_no_reclaim_or_borrows(stage):
    fill(stage, "n0")
    async with stage.leader():
        uid = in_line(stage)
        charge(stage, uid, takes_back=False)
        await asyncio.sleep(20)
        charge(stage, uid, tier=Tier.PREEMPTIBLE)
        await asyncio.sleep(20)
    assert (stage.real_evictions(), stage.taints("n0"), tolerates(stage)) == (0, [], [])


async def test_a_charge_that_ends_before_the_eviction_leaves_all_as_it_was(stage):
    fill(stage, "n0")
    policy = replace(POOR, reclaim=ReclaimRules(notice_seconds=120))
    async with stage.leader(policy):
        charge(stage, in_line(stage))
        await stage.until(lambda: bool(tolerates(stage)))
        charge(stage)
        await stage.until(lambda: not stage.taints("n0"))
        await asyncio.sleep(300)
    assert stage.real_evictions() == 0


async def test_a_pod_that_goes_back_to_the_line_waits_there_and_is_charged_again(stage):
    fill(stage, "n0")
    policy = replace(POOR, reclaim=ReclaimRules(notice_seconds=120))
    async with stage.leader(policy):
        uid = in_line(stage)
        for _ in range(2):
            charge(stage, uid)
            await stage.until(lambda: bool(stage.taints("n0")))
            charge(stage)
            await stage.until(lambda: not stage.taints("n0"))
        charge(stage, uid)
        await asyncio.sleep(200)
        assert stage.real_evictions() == 1


async def test_the_next_leader_goes_on_with_the_room_of_a_pod_that_is_still_in_line(stage):
    fill(stage, "n0")
    policy = replace(POOR, reclaim=ReclaimRules(notice_seconds=60))
    async with stage.leader(policy):
        uid = in_line(stage)
        charge(stage, uid)
        await stage.until(lambda: bool(tolerates(stage)))
    async with stage.leader(policy):
        await asyncio.sleep(120)
        assert stage.real_evictions() == 1
        assert len(stage.taints("n0")) == len(tolerates(stage)) == 1


async def test_a_user_whose_charged_pods_never_start_makes_no_more_evictions(stage):
    """It is deleted once its victim is gone, and the next one comes: the team is paused as for pods without a gate."""
    fill(stage, "n0", "n1")
    async with stage.leader():
        for number in range(8):
            name = f"b{number}"
            charge(stage, in_line(stage, name))
            await asyncio.sleep(TOGETHER_SECONDS + 1)
            if tolerates(stage, name):
                stage.api.delete(PODS, name, namespace="team-b")
            charge(stage)
            await asyncio.sleep(1)
        assert stage.real_evictions() <= 4


async def test_a_user_who_changes_a_pod_whenever_its_room_is_made_makes_no_more_evictions(stage):
    """The leader then withdraws its charge, and charges it again in its next turn."""
    fill(stage, "n0", "n1")
    async with stage.leader():
        uid = in_line(stage)
        for _ in range(8):
            charge(stage, uid)
            await asyncio.sleep(TOGETHER_SECONDS + 1)
            charge(stage)
            await asyncio.sleep(1)
        assert stage.real_evictions() <= 4


async def test_a_user_whose_charged_gangs_never_start_makes_no_more_evictions(stage):
    """Its pods are deleted once the victims are gone, before the gang can start, and the next one comes."""
    fill(stage, "n0", "n1", "n2", "n3")
    async with stage.leader():
        for number in range(8):
            names = [f"b{number}-{each}" for each in range(2)]
            charge(stage, *[in_line(stage, name, 1, whole=2) for name in names])
            await asyncio.sleep(TOGETHER_SECONDS + 3)
            for name in names:
                stage.api.delete(PODS, name, namespace="team-b")
            charge(stage)
            await asyncio.sleep(1)
        assert stage.real_evictions() <= 8, "of 16: as for pods alone"


async def test_room_that_no_leader_uses_is_given_up_and_is_not_the_pods_fault(stage):
    fill(stage, "n0")
    async with stage.leader() as manager:
        charge(stage, in_line(stage))
        await stage.until(lambda: stage.real_evictions() == 1)
        await asyncio.sleep(200)
        assert stage.taints("n0"), "the webhook may be restarting"
        await asyncio.sleep(300)
        assert not manager.teams.paused()


async def test_without_enforcement_nothing_is_evicted_for_it(stage):
    fill(stage, "n0")
    async with stage.leader(replace(POOR, enforce=Enforcement.OFF)):
        charge(stage, in_line(stage))
        await asyncio.sleep(30)
    assert (stage.real_evictions(), stage.taints("n0"), tolerates(stage)) == (0, [], [])


async def test_an_edit_of_the_pools_holds_for_pods_that_are_charged_already():
    view, found = ClusterView(POOR), waiting("b", namespace="team-b")
    charge_ = Charge(B, Tier.GUARANTEED, found.pod.demand.gpus)
    view.set_pod(found)
    kind = next(kind for kind in view.feed(object()).watches if kind.kind.name == "teamledgers").kind
    listed = {found.uid: InFlightCharge(make.resident(1, uid=found.uid), charge_, None, takes_back=True)}
    body = json.loads(encode(LedgerRecord(listed), ledger_row(B, make.world(POOR)), version=1))
    kind.apply(decode(json.dumps(body).encode()))
    assert view.reclaim_index.get(found.uid).constraints.node_selector == ()
    pool = make.pool("gold", node_selector=(("pool", "gold"),))
    view.set_policy(replace(POOR, pools=(pool,)))
    assert view.reclaim_index.get(found.uid).constraints.node_selector == (("pool", "gold"),)
