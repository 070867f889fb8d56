"""The record of an allowed pod until the watch shows it."""

import pytest

from tests.core.support.make import gpus, pod
from webhook.core.model.amounts import NodeName
from webhook.core.model.constraints import Operator, Requirement, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule
from webhook.core.quota.charges import flight_of

CHARGE = Charge("team-a", Tier.GUARANTEED, gpus(1), user="alice")
OFF_WEB = AffinityRule(("zone",), True, LabelSelector((Requirement("app", Operator.IN, ("web",)),)))
LABELS = {"app": "batch", "owner": "alice"}


def made(*, is_watched=True, **more):
    asked = pod(1, uid="u1", labels=LABELS, **more)
    return flight_of(asked, CHARGE, nodes=(NodeName("n1"), NodeName("n2")), is_watched=is_watched)


def test_it_takes_its_room_on_the_first_node_or_the_one_that_it_names():
    assert (made().node, made(node_name=NodeName("n9")).node) == ("n1", "n9")


@pytest.mark.parametrize(
    ("topology", "is_watched", "want"),
    [((), True, {}), ((OFF_WEB,), True, {"app": "batch"}), ((OFF_WEB,), False, LABELS), ((), False, LABELS)],
)
def test_its_labels_are_those_of_its_own_rules_where_a_watch_will_show_the_others(topology, is_watched, want):
    assert made(topology=topology, is_watched=is_watched).pod.labels == want


@pytest.mark.parametrize("is_watched", [True, False])
def test_its_anti_affinity_holds_at_once(is_watched):
    assert made(topology=(OFF_WEB,), is_watched=is_watched).pod.anti_affinity_rules == (OFF_WEB,)
