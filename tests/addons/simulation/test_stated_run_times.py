"""The property that what users state of run times changes nothing: no decision, no order, no eviction."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.addons.simulation.loads import policy_of, task, team, world_of
from tests.examples import examples
from webhook.addons.simulation.engine import Simulation
from webhook.core.explain.line_places import places
from webhook.core.explain.line_rows import QueueReader
from webhook.core.model.amounts import User
from webhook.core.model.pod import RunTime

SAID = st.builds(RunTime, st.integers(0, 10**8), st.sampled_from(["", "ignored"]))
TASKS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(1, 8),
        st.integers(0, 600),
        st.integers(1, 2_000),
        st.sampled_from([None, "g", "h"]),
        st.sampled_from(["ann", "bob"]),
        SAID,
    ),
    min_size=4,
    max_size=14,
)


def run(tasks, *, is_said):
    """All that came of these tasks, and the line in the middle of it."""
    simulation = Simulation(world_of(policy_of(team("a", 8), team("b", 4, limit=12)), nodes=2), [])
    for number, (name, gpus, at, seconds, gang, user, said) in enumerate(tasks):
        member = None if gang is None else f"{gang}-{name}"
        made = task(f"t{number}", name, gpus, at=at, seconds=seconds, gang=member)
        made = made._replace(user=User(user), pod=made.pod._replace(run_time=said if is_said else RunTime()))
        simulation.add(made)
    line = {}

    def on_time(running):
        found = {row.waiting.pod.name: (row.place, row.reason) for row in QueueReader(running.world).rows()}
        line[running.now] = (found, sorted((uid, place) for uid, place in places(running.world).items()))

    simulation.on_time = on_time
    simulation.run()
    came = [(each.state, each.started, each.ended, each.tier, each.node, each.evictions) for each in simulation.records]
    return came, line, [(each.at, each.name) for each in simulation.evictions]


FIRST_ENDS_BEFORE_THE_REST_COME = [
    *[("a", 1, 0, 1, None, "ann", RunTime())] * 6,
    ("a", 1, 34, 234, None, "ann", RunTime()),
    ("a", 1, 177, 91, None, "ann", RunTime()),
    ("a", 5, 262, 6, None, "ann", RunTime()),
    ("b", 1, 267, 1, "g", "ann", RunTime()),
    ("b", 1, 267, 1, None, "ann", RunTime()),
    ("b", 2, 0, 263, None, "ann", RunTime()),
    ("b", 4, 0, 260, "g", "ann", RunTime()),
    ("b", 7, 4, 1, "g", "ann", RunTime()),
]


@examples(12)
@example(FIRST_ENDS_BEFORE_THE_REST_COME)
@given(TASKS)
def test_stated_run_times_never_change_the_order(tasks):
    assert run(tasks, is_said=True) == run(tasks, is_said=False)
