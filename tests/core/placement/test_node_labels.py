"""Nodes are found by their present labels, taints and names, after any change."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import node
from webhook.core.model.constraints import (
    NODE_NAME_FIELD,
    Constraints,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
)
from webhook.core.placement.fleet import Fleet

KEYS, VALUES, NAMES = ["zone", "size", "other"], ["a", "b", "3", "12", "-4", "07", "1_0"], ["n0", "n1", "n2", "n3"]
TAINTS = [
    Taint("gpu", Effect.NO_SCHEDULE, "x"),
    Taint("held", Effect.NO_EXECUTE),
    Taint("soft", Effect.PREFER_NO_SCHEDULE),
]

requirements = st.builds(
    Requirement,
    st.sampled_from([*KEYS, "unknown"]),
    st.sampled_from(list(Operator)),
    st.lists(st.sampled_from(VALUES), max_size=3).map(tuple),
)
fields = st.builds(
    Requirement,
    st.sampled_from([NODE_NAME_FIELD, "metadata.namespace"]),
    st.sampled_from([Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST]),
    st.lists(st.sampled_from([*NAMES, "gone"]), max_size=3).map(tuple),
)
terms = st.builds(NodeTerm, st.lists(requirements, max_size=3).map(tuple), st.lists(fields, max_size=2).map(tuple))
tolerations = st.builds(
    Toleration,
    st.sampled_from(["", "gpu", "held"]),
    st.booleans(),
    st.sampled_from(["", "x"]),
    st.sampled_from([None, *Effect]),
)
constraints = st.builds(
    Constraints,
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=2).map(tuple),
    st.none() | st.lists(terms, max_size=4).map(tuple),
    st.lists(tolerations, max_size=3).map(tuple),
)
nodes = st.builds(
    lambda name, labels, taints: node(name, labels=labels, taints=tuple(taints)),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    st.lists(st.sampled_from(TAINTS), max_size=2, unique=True),
)


@given(st.lists(nodes | st.sampled_from(NAMES), max_size=12), st.lists(constraints, min_size=1, max_size=4))
def test_matching_nodes_are_those_of_a_plain_scan(changes, asked):
    fleet = Fleet()
    for change in changes:
        if isinstance(change, str):
            fleet.remove(change)
        else:
            fleet.set(change)
        for each in asked:
            want = {one.name for one in fleet.nodes() if each.admits(one.name, one.labels, one.taints)}
            assert set(fleet.names_of(fleet.matching(each))) == want


ZONES = {zone: (NodeTerm((Requirement("zone", Operator.IN, (zone,)),)),) for zone in "ab"}


def test_a_bound_volume_narrows_the_nodes_until_it_is_gone():
    fleet = Fleet()
    for name, zone in (("n0", "a"), ("n1", "b")):
        fleet.set(node(name, labels={"zone": zone}))
    wanted = Constraints(volumes=("team-a/home", "team-a/unbound"))
    assert fleet.names_of(fleet.matching(wanted)) == ["n0", "n1"]
    fleet.labels.set_volume("pv-1", "team-a/home", ZONES["b"])
    assert fleet.names_of(fleet.matching(wanted)) == ["n1"]
    assert fleet.names_of(fleet.sorted_copy().matching(wanted)) == ["n1"]
    fleet.labels.set_volume("pv-2", "team-a/home", ZONES["a"])  # the claim was made again
    fleet.labels.remove_volume("pv-1")
    assert fleet.names_of(fleet.matching(wanted)) == ["n0"]
    fleet.labels.remove_volume("pv-2")
    assert fleet.names_of(fleet.matching(wanted)) == ["n0", "n1"]


def test_a_soft_taint_discourages_pods_that_do_not_tolerate_it():
    fleet = Fleet()
    fleet.set(node("n0", taints=(TAINTS[0], TAINTS[2])))
    fleet.set(node("n1", taints=(TAINTS[0],)))
    tolerating = Constraints(tolerations=(Toleration("soft", exists=True),))
    assert fleet.names_of(fleet.labels.discouraged(Constraints())) == ["n0"]
    assert fleet.labels.discouraged(tolerating) == 0
    fleet.set(node("n0"))
    assert fleet.labels.discouraged(Constraints()) == 0
