"""Operators change nodes: shares, charges and reasons meanwhile, from the first label to the last."""

from dataclasses import replace

import pytest

from tests.core.support.make import ALICE, GPU, demand, gpus, node, pod, policy, resident, team
from tests.core.support.outcomes import outcome_of
from tests.core.support.reclaim_pods import NOW, asker, borrower, indexed
from webhook.core.admission.admission import admit
from webhook.core.explain.board import node_row
from webhook.core.model.decision import Queue
from webhook.core.model.demand import demand_of
from webhook.core.model.names import PODS, GpuModel, Namespace, ResourceName
from webhook.core.model.node import Maintenance
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import BUILT_IN_RESOURCES, Share
from webhook.core.model.reason import Code
from webhook.core.placement.absent_nodes import ABSENT_SECONDS
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.reclaim_snapshot import largest_room, pods_within_share, take_snapshot
from webhook.core.world.world import World
from webhook.observe.gpu_rows import maintenance_rows

ONE_G = ResourceName("nvidia.com/mig-1g.5gb")
PRODUCT, WHOLE, SLICED = "nvidia.com/gpu.product", GpuModel("A100"), GpuModel("A100-MIG-1g.5gb")
MIG, DRIVER = Maintenance.PARTITIONING, Maintenance.DRIVER_UPGRADE
WEIGHTS = {**BUILT_IN_RESOURCES, ONE_G: gpus(1) // 7}


def labelled(name, model, **more):
    labels = {PRODUCT: model} if model else {}
    return node(name, model=model, model_label=PRODUCT if model else "", labels=labels, **more)


def live(*nodes, of=None):
    made = World(of or policy(resources=WEIGHTS), is_live=True)
    made.set_namespace(NamespaceFacts(Namespace("team-a")))
    made.tick(1_000)
    for each in nodes:
        made.set_node(each)
    return made


@pytest.mark.parametrize("what", list(Maintenance))
def test_a_node_in_maintenance_gets_no_pod_and_is_the_reason_why_it_waits(what):
    place = live(node("n0", gpus=8, maintenance=what, is_cordoned=True))
    outcome, code, text = outcome_of(pod(4), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text == (
        f"node n0 takes no new pods while its {what.value}: the pod waits; 1 node could hold it when free and open"
    )
    place.set_node(node("n0", gpus=8))
    assert outcome_of(pod(4), place)[0] == "runs"


def test_where_kube_scheduler_would_use_it_all_the_same_the_pod_waits_in_line():
    """MIG manager neither cordons nor taints: a pod that came would keep it from partitioning the GPUs."""
    place = live(node("n0", gpus=8, maintenance=MIG))
    decision = admit(pod(4), ALICE, place)
    assert isinstance(decision, Queue)
    assert "node n0 takes no new pods while its GPUs are being repartitioned" in decision.reason.text
    place.set_pod(resident(8, node="n0"))
    assert outcome_of(pod(4), place)[0] == "waits", "it has no room for kube-scheduler either"


def test_other_nodes_are_used_and_their_lack_is_said_beside_it():
    place = live(
        node("n0", gpus=8, maintenance=DRIVER, is_cordoned=True),
        node("n1", gpus=8),
        node("n2", gpus=8, maintenance=MIG, is_cordoned=True),
    )
    assert outcome_of(pod(8), place)[0] == "runs"
    place.set_pod(resident(8, node="n1"))
    text = outcome_of(pod(8), place)[2]
    assert text.startswith(
        "no node has nvidia.com/gpu 8 free now, and node n0 takes no new pods while its driver is being upgraded, "
        "nor 1 other node in maintenance: the pod waits"
    )


def test_cordoned_for_an_upgrade_it_says_the_upgrade():
    place = live(node("n0", is_cordoned=True, maintenance=DRIVER))
    assert "while its driver is being upgraded" in outcome_of(pod(4), place)[2]
    assert node_row(place.fleet.get("n0"), (), place).state == "driver is being upgraded"
    place.set_node(node("n0", is_cordoned=True, is_ready=False, maintenance=DRIVER))
    assert node_row(place.fleet.get("n0"), (), place).state == "not ready"


def test_through_a_repartitioning_a_pod_waits_for_what_the_node_offered():
    place = live(node("small", gpus=4), node("n0", gpus=8))
    place.set_node(node("n0", gpus=0, at_best={GPU: 8}, maintenance=MIG))
    _, code, text = outcome_of(pod(8), place)
    assert code == Code.NO_ROOM_NOW
    assert text.startswith("node n0 offers 0 of 8 nvidia.com/gpu now: its GPUs are being repartitioned: the pod waits")
    place.set_node(node("n0", gpus=0, maintenance=MIG))  # five minutes later
    place.tick(2_000 + 2 * ABSENT_SECONDS)
    place.tick(2_000 + 3 * ABSENT_SECONDS)
    outcome, code, text = outcome_of(pod(8), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text == (
        "node n0 takes no new pods while its GPUs are being repartitioned: the pod waits; "
        "1 node that could hold it offered more before"
    )
    slices = {"demand": demand_of({ONE_G: 7, PODS: 1}, WEIGHTS)}
    assert outcome_of(pod(**slices), place)[0] == "waits", "what the node will offer"
    done = node("n0", gpus=0)
    place.set_node(replace(done, allocatable={**done.allocatable, ONE_G: 56}))
    assert outcome_of(pod(**slices), place)[0] == "runs"
    place.tick(2_000 + 4 * ABSENT_SECONDS + 1)
    place.tick(2_000 + 5 * ABSENT_SECONDS + 2)
    assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)


def test_nothing_is_refused_for_good_while_it_is_not_known_what_a_node_had():
    """A server that starts while the resource is gone."""
    place = live(node("small", gpus=4), node("n0", gpus=0, maintenance=MIG))
    outcome, code, text = outcome_of(pod(8), place)
    assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
    assert text.endswith("repartitioned: the pod waits; what 1 node will offer then is not known")
    place.set_node(node("n0", gpus=0))
    assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)


def test_no_borrower_is_evicted_for_room_on_it():
    pods = (borrower("a", 10, on="n0"), asker("b", 4))
    reclaim_index, place = indexed(*pods, policy=policy(team(guaranteed=0), team("team-b")), nodes=1)
    place.set_node(node("n0", maintenance=MIG))
    found = plan(pods_within_share(reclaim_index, place), take_snapshot(reclaim_index, place, now=NOW))
    assert (found.moves, [each.cause for each in found.refused]) == ((), [NoPlan.NO_NODE])
    assert largest_room(reclaim_index, place) == 0
    place.set_node(node("n0"))
    found = plan(pods_within_share(reclaim_index, place), take_snapshot(reclaim_index, place, now=NOW))
    assert [victim.uid for move in found.moves for victim in move.victims] == ["a"]


@pytest.mark.parametrize("after", [WHOLE, SLICED], ids=["whole as before", "sliced now"])
@pytest.mark.parametrize("before", [WHOLE, SLICED], ids=["was whole", "was sliced"])
def test_a_pod_on_it_stays_charged_as_the_kubelet_gave_it(before, after):
    """Its devices are gone, then its labels, then both are there again, and other pods come."""
    place = live(labelled("n0", before, gpus=7))
    old, new = resident(7, uid="old", node="n0"), resident(7, uid="new", namespace="team-b", node="n0")
    place.set_pod(old)
    own = gpus(7) if before is WHOLE else gpus(1)
    states = [
        labelled("n0", before, gpus=0, maintenance=MIG, at_best={GPU: 7}),
        labelled("n0", "", gpus=0, maintenance=MIG),
        labelled("n0", after, gpus=7),
    ]
    for each in states:
        place.set_node(each)
        place.set_pod(old._replace(version=old.version + 1))
        assert place.usage("team-a").total in {own, max(own, gpus(7 if after is WHOLE else 1))}
        assert place.usage("team-a").total >= own
        if each is not states[-1]:
            assert place.usage("team-a").total == own
    place.set_pod(new)
    assert place.usage("team-b").total == (gpus(7) if after is WHOLE else gpus(1)), "a new pod counts as the node is"
    place.remove_pod("old")
    assert place.usage("team-a").total == 0


def test_without_its_label_a_node_keeps_its_pods_in_the_share_of_their_model():
    shares = policy(team(models={WHOLE: Share(gpus(2), gpus(4))}))
    place = live(labelled("n0", WHOLE, gpus=8), of=shares)
    place.set_pod(resident(4, uid="r", node="n0"))
    place.set_node(labelled("n0", "", gpus=8, maintenance=DRIVER))
    assert place.usage("team-a").model(WHOLE) == gpus(4)
    place.set_node(labelled("n0", WHOLE, gpus=8))
    assert place.usage("team-a").model(WHOLE) == gpus(4)


def test_its_gpus_are_exported_as_they_were():
    place = live(labelled("n0", WHOLE, gpus=8), labelled("n1", WHOLE, gpus=8))

    def exported():
        return [(row.labels, row.values) for row in maintenance_rows(place)]

    assert exported() == []
    place.set_node(labelled("n0", WHOLE, gpus=8, maintenance=DRIVER))
    place.set_node(labelled("n1", WHOLE, gpus=0, at_best={GPU: 8}, maintenance=MIG))
    assert exported() == [((WHOLE,), (16.0,))]
    place.set_node(labelled("n1", "", gpus=0, maintenance=MIG))
    assert exported() == [((WHOLE,), (16.0,))]
    place.remove_node("n1")
    place.set_node(labelled("n0", WHOLE, gpus=8))
    assert exported() == []


def test_shares_do_not_depend_on_what_nodes_offer():
    place = live(node("n0", gpus=8, maintenance=MIG))
    place.set_pod(resident(8, uid="r", node="n0", demand=demand(8)))
    before = place.usage("team-a").guaranteed
    place.set_node(node("n0", gpus=0, maintenance=MIG))
    assert place.usage("team-a").guaranteed == before == gpus(8)
