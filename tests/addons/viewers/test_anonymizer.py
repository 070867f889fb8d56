"""The anonymous world of a world: no name is in it, and what a tenant may choose is bounded."""

from tests.core.support.make import demand, node, policy, resident, team, world
from tests.core.support.waiting import waiting
from webhook.addons.viewers import nameless
from webhook.addons.viewers.nameless import PART, Anonymizer
from webhook.core.model.amounts import NodeName, User
from webhook.core.world.hidden_usage import Totals, Unnamed
from webhook.core.world.world import World

POLICY = policy(team("team-a"), team("team-b", limit_=None))


def anonymous(full):
    made = Anonymizer(full)
    list(made.steps())
    return made.result()


def test_names_of_others_are_not_in_it():
    full = world(POLICY, [node("n0")])
    secret = resident(2, uid="u", namespace="team-b", name="secret", node=NodeName("n0"), user=User("mallory"))
    full.set_pod(secret._replace(packed="app=secret"))
    full.set_waiting(waiting("secret-too", 2, namespace="team-b", user=User("mallory")))
    seen = World(POLICY)
    Unnamed(world=anonymous(full)).fill(seen)
    said = str(anonymous(full)) + str([*seen.pods()]) + str([*seen.waiting.all()])
    assert not [word for word in ("secret", "mallory", "uid-") if word in said]
    assert "team-b" in said, "a team has the name that policy gives it"


def test_a_resource_that_no_node_offers_is_left_out():
    full = world(POLICY, [node("n0")])
    strange = demand(1, **{"example.com/my-secret": 3})
    full.set_pod(resident(namespace="team-b", demand=strange, node=NodeName("n0")))
    assert "secret" not in str(anonymous(full))


def test_each_team_lists_a_bounded_number_of_pods_in_line_the_oldest_first(monkeypatch):
    monkeypatch.setattr(nameless, "MOST_WAITING", 2)
    full = world(POLICY)
    for number in range(4):
        full.set_waiting(waiting(f"w{number}", 1, created=10 - number))
    full.set_waiting(waiting("other", 1, namespace="team-b", created=50))
    full.set_waiting(waiting("ends", 1, created=0, is_terminating=True))
    assert [each.created for each in anonymous(full).waiting] == [7, 8, 50]


def test_each_team_lists_a_bounded_number_of_pods_without_a_node(monkeypatch):
    """The room is one object for all viewers, and a tenant may create pods that never get a node."""
    monkeypatch.setattr(nameless, "MOST_UNBOUND", 2)
    full = world(POLICY, [node("n0")])
    for number in range(5):
        full.set_pod(resident(1, uid=f"p{number}", created=number))
        full.set_pod(resident(0, uid=f"none{number}", created=number))
    full.set_pod(resident(1, uid="on", created=9, node="n0"))
    full.set_pod(resident(1, uid="other", namespace="team-b", created=7))
    assert sorted(each.created for each in anonymous(full).pods) == [0, 7, 9]
    usage = full.usage("team-a")
    seen = World(POLICY)
    totals = Totals("team-a", usage.total, usage.preemptible, usage.waiting)
    Unnamed((totals,), anonymous(full)).fill(seen)
    assert (seen.usage("team-a").total, seen.usage("team-a").waiting) == (usage.total, usage.waiting)


def test_it_is_made_in_steps_and_of_the_pods_that_were_there_when_it_began():
    full = world(POLICY, [node("n0", gpus=4 * PART)])
    for number in range(3 * PART):
        full.set_pod(resident(1, uid=f"u{number}", node=NodeName("n0")))
    made = Anonymizer(full)
    steps = made.steps()
    next(steps)
    full.set_pod(resident(1, uid="late", node=NodeName("n0")))
    assert sum(1 for _ in steps) == 3
    assert len(made.result().pods) == 3 * PART
