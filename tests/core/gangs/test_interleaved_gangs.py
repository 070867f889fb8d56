"""Two gangs whose pods come one after the other in any order never end with both half started."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import node, policy, resident, team, world
from tests.core.support.waiting import member
from tests.examples import examples
from webhook.core.line.gang_plans import GangPlan
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.starting.starts import AssumedStarts

QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}
NODES, SIZE, GPUS = 4, 6, 4  # two pods on each node: room for eight of the twelve


def run(order, *, is_described, passes):
    """Let the pods of two gangs come in an order, with a look at the queue after some; return what has started."""
    place = world(policy(team(**QUEUES), team("team-b", **QUEUES)), nodes=[node(f"n{each}") for each in range(NODES)])
    starts = AssumedStarts(place)
    started = {"one": 0, "two": 0}

    def look(now):
        for pod in starts.entries.gangs.unread(now=now):
            starts.entries.gangs.learn(pod.pod.gang.id, GangPlan(SIZE))
        for turn in starts.due(now=now, count=99):
            place.drop_reservation(turn.waiting.uid)
            first = turn.admit.node_choice.nodes[0]
            place.set_pod(resident(GPUS, uid=turn.waiting.uid, node=first, gang=turn.gang))
            started[turn.waiting.pod.gang.name] += 1

    for number, name in enumerate(order):
        namespace = "team-a" if name == "one" else "team-b"
        size = 0 if is_described else SIZE
        more = {"size": size, "is_described": is_described, "namespace": namespace, "created": number}
        place.set_waiting(member(f"{name}-{number}", name, GPUS, **more))
        if passes[number % len(passes)]:
            look(100 + number)
        assert set(started.values()) <= {0, SIZE}
    for now in range(200, 210):
        look(now)
        assert set(started.values()) <= {0, SIZE}
    return started


@examples()
@given(
    order=st.permutations(["one"] * SIZE + ["two"] * SIZE),
    is_described=st.booleans(),
    passes=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_one_starts_whole_and_nothing_of_the_other(order, is_described, passes):
    assert sorted(run(order, is_described=is_described, passes=passes).values()) == [0, SIZE]
