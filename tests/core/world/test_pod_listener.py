"""Who listens to a world hears of each pod that may count as something else, and of nothing that is only tried."""

from tests.core.support import make
from tests.core.support.waiting import waiting
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge


def test_a_listener_hears_of_each_pod_that_may_count_as_something_else():
    place, heard = make.world(), []
    place.notify_of_pods(heard.append)
    resident = make.resident(1, uid="runs")
    for change in (
        lambda: place.set_pod(resident),
        lambda: place.set_pod(resident._replace(node=NodeName("n0"), version=2)),
        lambda: place.set_policy(make.policy()),
        lambda: place.remove_pod(resident.uid),
    ):
        heard.clear()
        change()
        assert "runs" in heard
    place.set_waiting(waiting("waits"))
    place.waiting.discard("uid-waits")
    assert heard[-2:] == ["uid-waits", "uid-waits"]


def test_a_listener_hears_nothing_of_what_is_only_tried():
    place, heard = make.world(), []
    place.notify_of_pods(heard.append)
    with place.what_if() as assume:
        charge = Charge(TeamName("team-a"), Tier.GUARANTEED, make.gpus(1))
        assume(make.flight(make.pod(1, uid="tried"), charge, NodeName("n0")))
    assert heard == []
