"""A tenant who makes namespaces without end: what is kept of them in memory is kept for each team."""

from tests import builders
from tests.core.support import make
from tests.kept import kept
from tests.kube.support.created import struct
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.policy import Team
from webhook.core.placement.rejecting_nodes import STRIKES
from webhook.core.world.world import World
from webhook.kube.watched.world_kinds import note_outcome

NAMESPACES = 2000
NOW = 1_767_225_700  # 2026-01-01T00:01:40Z


def show(world, namespace, phase, second, *, reason=""):
    """Have the watch show a pod of a namespace on n0."""
    made = builders.pod(f"p-{second}", uid=f"{namespace}-{second}", namespace=namespace, node="n0")
    status = {"phase": phase, "reason": reason, "startTime": f"2026-01-01T00:00:{second:02}Z"}
    note_outcome(world, struct(made | {"status": status}))


def test_pods_that_start_in_ever_new_namespaces_take_no_memory_and_hide_no_start_of_others():
    teams = (Team(TeamName("attacker"), ("attacker-*",)), Team(TeamName("honest"), ("honest",)))
    world = World(make.policy(*teams))
    world.set_node(make.node("n0"))
    world.tick(NOW)
    show(world, "honest", "Running", 10)
    show(world, "attacker-0", "Running", 0)
    size = kept(world.rejecting_nodes)
    for number in range(NAMESPACES):
        show(world, f"attacker-{number}", "Running", number % 60)
    assert kept(world.rejecting_nodes) == size
    for second in range(STRIKES):  # what ran before the node rebooted
        show(world, "honest", "Failed", 10 - second, reason="UnexpectedAdmissionError")
    assert not world.rejecting_nodes.records
    for second in range(STRIKES):
        show(world, "honest", "Failed", 20 + second, reason="UnexpectedAdmissionError")
    assert [each.team for each in world.rejecting_nodes.on(NodeName("n0"))] == ["honest"]
