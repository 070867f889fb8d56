"""The teams of namespaces as namespaces and policy change."""

from tests.core.support.make import ALICE, gpus, node, pod, policy, requirement, resident, team, world
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import Namespace, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Retry
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import LabelSelector
from webhook.core.model.reasons import Code
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World


def test_pods_follow_their_namespace_to_another_team():

    selector = LabelSelector((requirement("team", "In", "x"),))
    place = world(policy(team("x", namespaces=(), namespace_selector=selector)))
    place.set_pod(resident(3, namespace="ns"))
    assert place.usage(TeamName("x")).total == 0
    place.set_namespace(NamespaceFacts(Namespace("ns"), {"team": "x"}))
    assert place.usage(TeamName("x")).total == gpus(3)


def test_a_pod_of_an_unseen_namespace_is_retried():
    place = World(policy(), is_live=True)
    place.set_node(node("n0"))
    asked = admit(pod(1), ALICE, place)
    assert isinstance(asked, Retry)
    assert asked.reason.code is Code.RACE_LOST
    place.set_namespace(NamespaceFacts(Namespace("team-a")))
    assert isinstance(admit(pod(1), ALICE, place), Admit)


A = TeamName("team-a")


def test_a_live_world_needs_the_namespace_of_every_pod():
    place = World(policy(), is_live=True)
    a = NamespaceFacts(Namespace("team-a"))
    place.assume(InFlightCharge(resident(1, uid="reserved"), Charge(A, Tier.GUARANTEED, gpus(1)), None))
    assert place.knows_all_namespaces, "a reservation names its team"
    place.set_pod(resident(1, uid="u"))
    assert not place.knows_all_namespaces
    place.set_namespace(a)
    assert place.knows_all_namespaces
    place.remove_namespace(a.name)
    assert not place.knows_all_namespaces
    place.remove_pod(Uid("u"))
    assert place.knows_all_namespaces
