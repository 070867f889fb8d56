"""What pods are charged and which room they take, as time passes and nodes come and go."""

from dataclasses import replace

import pytest

from tests.core.support import claims
from tests.core.support.make import GPU, gpus, node, resident, world
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.pod import Obstacle, Stage, Unbound
from webhook.core.world.charged_pods import OUT_OF_SERVICE, is_lost

NOW = 1_000_000
TEAM = TeamName("team-a")
STALLED = Unbound(Obstacle.OTHER, 'persistentvolumeclaim "data" not found')


def there(*pods, now=NOW):
    made = world(nodes=[node("n0"), node("n1")])
    made.tick(now)
    for pod in pods:
        made.set_pod(pod)
    return made


def free(place, name="n0"):
    return place.fleet.free(NodeName(name), GPU)


def charged(place):
    return place.usage(TEAM).total


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (None, True),
        (node(), False),
        (node(is_ready=False), True),
        (node(is_cordoned=True), False),
        (node(taints=(Taint(OUT_OF_SERVICE, Effect.NO_EXECUTE, "nodeshutdown"),)), True),
        (node(taints=(Taint("dedicated", Effect.NO_SCHEDULE, "x"),)), False),
    ],
    ids=["gone", "healthy", "not ready", "cordoned", "out of service", "tainted"],
)
def test_a_node_is_lost(found, want):
    assert is_lost(found) is want


class TestAPodThatNeverIsBound:
    def test_it_loses_its_room_and_keeps_its_charge(self):
        place = there(resident(4, uid="p", promised="n0", unbound=STALLED))
        assert (free(place), charged(place)) == (6, gpus(4))
        place.tick(NOW + 9)
        assert free(place) == 6
        place.tick(NOW + 10)
        assert (free(place), charged(place), place.stages.of("p")) == (10, gpus(4), Stage.STALLED)

    def test_an_event_of_it_does_not_bring_its_room_back(self):
        place = there(resident(4, uid="p", promised="n0", unbound=STALLED))
        place.tick(NOW + 10)
        place.set_pod(resident(4, uid="p", promised="n0", unbound=Unbound(Obstacle.ROOM), version=9))
        assert free(place) == 10

    def test_once_it_is_bound_it_takes_its_room(self):
        place = there(resident(4, uid="p", promised="n0", unbound=STALLED))
        place.tick(NOW + 10)
        place.set_pod(resident(4, uid="p", node="n1"))
        assert (free(place), free(place, "n1"), charged(place)) == (10, 6, gpus(4))

    def test_usage_is_reported_as_changed(self):
        place, changes = there(resident(4, uid="p", promised="n0", unbound=STALLED)), []
        place.on_usage_changed = lambda: changes.append(1)
        place.tick(NOW + 9)
        assert not changes
        place.tick(NOW + 10)
        assert changes, "the line is judged again"

    def test_the_time_of_the_first_tick_counts_for_pods_seen_before_it(self):
        place = there(resident(4, uid="p", promised="n0", unbound=STALLED), now=0)
        assert free(place) == 10, "the time is not known"


def test_deleted_it_is_charged_nothing_though_a_finalizer_keeps_it():
    """Without a node it never runs: kube-scheduler skips it, and the API server refuses to bind it."""
    place = there(resident(4, uid="p", promised="n0"))
    place.set_pod(resident(4, uid="p", promised="n0", is_terminating=True, deadline=NOW + 30))
    assert (free(place), charged(place)) == (10, 0)


class TestADeletedPod:
    POD = resident(4, uid="p", node="n0", is_terminating=True, deadline=NOW + 30)

    def test_on_a_healthy_node_it_counts_until_its_end_is_seen(self):
        place = there(self.POD)
        place.tick(NOW + 86_400)
        assert (charged(place), free(place), place.stages.of("p")) == (gpus(4), 6, Stage.OVERDUE)
        place.remove_pod("p")
        assert (charged(place), free(place)) == (0, 10)

    def test_on_a_lost_node_it_counts_until_its_deadline(self):
        place = there(self.POD)
        place.set_node(node("n0", is_ready=False))
        place.tick(NOW + 30)
        assert charged(place) == gpus(4)
        place.tick(NOW + 31)
        assert (charged(place), free(place), place.stages.of("p")) == (0, 6, Stage.LOST)

    @pytest.mark.parametrize("lose", ["gone", "not ready", "out of service"])
    def test_past_its_deadline_it_counts_until_its_node_is_lost(self, lose):
        place = there(self.POD)
        place.tick(NOW + 31)
        assert charged(place) == gpus(4)
        found = node("n0")
        if lose == "gone":
            place.remove_node("n0")
        elif lose == "not ready":
            place.set_node(replace(found, is_ready=False))
        else:
            place.set_node(replace(found, taints=(Taint(OUT_OF_SERVICE, Effect.NO_EXECUTE, "x"),)))
        assert charged(place) == 0

    def test_a_node_that_comes_back_with_the_pod_counts_it_again(self):
        place = there(self.POD)
        place.set_node(node("n0", is_ready=False))
        place.tick(NOW + 31)
        place.set_node(node("n0"))
        assert charged(place) == gpus(4)

    def test_pods_that_are_not_deleted_count_on_a_lost_node(self):
        place = there(resident(4, uid="p", node="n0"))
        place.set_node(node("n0", is_ready=False))
        place.tick(NOW + 86_400)
        assert charged(place) == gpus(4)

    def test_before_the_time_is_known_nothing_is_counted_off_for_good(self):
        place = there(now=0)
        place.set_node(node("n0", is_ready=False))
        place.set_pod(self.POD)
        assert charged(place) == 0, "in a world file the deadline has passed"
        place.tick(NOW)
        assert charged(place) == gpus(4)


class TestASharedClaim:
    """A tenant owns the pod that is charged for a claim, and another one that uses its devices."""

    def test_a_user_that_is_no_longer_charged_leaves_the_claim_to_the_other_user(self):
        place = claims.world()
        place.tick(NOW)
        place.set_claim(claims.SHARED, claims.spec(8), "claim-1")
        place.set_pod(claims.resident("charged", claims.SHARING))
        place.set_pod(claims.resident("user", claims.SHARING, node="n0"))
        assert (claims.charged(place), place.charge_of("user")) == (8, None)
        place.set_pod(claims.resident("charged", claims.SHARING, is_terminating=True, deadline=NOW + 30))
        assert place.stages.of("charged") is Stage.ENDED
        assert (claims.charged(place), place.charge_of("charged")) == (8, None)
        assert place.charge_of("user").gpus == gpus(8)

    def test_on_a_lost_node_the_user_that_is_not_deleted_pays(self):
        place = claims.world()
        place.tick(NOW)
        place.set_claim(claims.SHARED, claims.spec(8), "claim-1")
        place.set_pod(claims.resident("charged", claims.SHARING, node="n0", is_terminating=True, deadline=NOW + 30))
        place.set_pod(claims.resident("user", claims.SHARING, node="n0"))
        place.remove_node("n0")
        place.tick(NOW + 31)
        assert place.stages.of("charged") is Stage.LOST
        assert (claims.charged(place), place.charge_of("user").gpus) == (8, gpus(8))
        place.remove_pod("user")
        assert claims.charged(place) == 0
        place.set_node(node("n0"))
        assert claims.charged(place) == 8, "its kubelet may still run it"


def test_the_room_of_a_nominated_pod_is_taken_where_the_nomination_says_now():
    waits = resident(4, uid="p", promised="n0", unbound=Unbound(Obstacle.ROOM), nominated="n1")
    place = there(waits)
    assert (free(place), free(place, "n1")) == (10, 6)
    place.tick(NOW + 1000)
    assert free(place, "n1") == 6  # it ends with the nomination, not with time
    place.set_pod(waits._replace(nominated="n0"))
    assert (free(place), free(place, "n1")) == (6, 10)
    place.set_pod(waits._replace(nominated=None))
    assert free(place, "n1") == 10
    assert waits._replace(team_label="a").for_reclaim.nominated is None
