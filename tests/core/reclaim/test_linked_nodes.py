"""Nodes whose victims must be chosen together."""

from tests.core.support.scenes import victim
from webhook.core.reclaim.joint_plan import LinkedNodes
from webhook.core.reclaim.victims import GuardId, VictimIndex, WorkloadId

THERE = [
    victim("g0", on="n0", gang="g"),
    victim("g1", on="n1", gang="g", guards=(GuardId("pdb"),)),
    victim("p2", on="n2", guards=(GuardId("pdb"),)),
    victim("w3", on="n3", workload=WorkloadId("job")),
    victim("w4", on="n4", workload=WorkloadId("job")),
    victim("s5", on="n5"),
]


def parts(*nodes):
    return sorted(map(sorted, LinkedNodes(VictimIndex(THERE)).parts(nodes)))


def test_gangs_budgets_and_workloads_link_nodes():
    assert parts("n0", "n1", "n2", "n3", "n4", "n5", "n6") == [["n0", "n1", "n2"], ["n3", "n4"], ["n5"], ["n6"]]


def test_what_links_a_gang_elsewhere_links_its_node():
    """The budget of g1 on n1 counts for the gang on n0, too."""
    assert parts("n0", "n2", "n5") == [["n0", "n2"], ["n5"]]


def test_only_gangs_on_several_of_the_nodes_are_found():
    links = LinkedNodes(VictimIndex(THERE))
    assert links.gangs(["n0", "n1", "n2"]) == ["g"]
    assert links.gangs(["n0", "n2"]) == []
