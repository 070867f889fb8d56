"""The decision annotation: what is written is read back, and nothing else is read as a decision."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, GPU, gpus, mutated, pod, requirement, world
from tests.core.support.outcomes import admitted
from webhook.core.admission.admission import admit
from webhook.core.model.constraints import Constraints, NodeTerm
from webhook.core.model.decision import read
from webhook.core.model.pod import Admitted


def written():
    """The annotation of an admitted pod, as data."""
    asked = pod(2, tier_label="preemptible")
    return json.loads(mutated(asked, admitted(admit(asked, ALICE, world()))).decision_annotation)


def test_a_decision_is_read_back_as_written():
    found = read(json.dumps(written()))
    assert (found.demand, found.nodes[0], found.user, found.asked) == (
        ((GPU, 2),), "n0", ALICE.username, "preemptible"
    )  # fmt: skip
    assert (found.pool, found.model, found.claims) == (None, None, ())
    assert found.admitted == Admitted(gpus(2), "p1")


def test_an_invalid_amount_is_no_charge():
    assert read(json.dumps(written() | {"gpus": "many"})).admitted is None


def test_nodes_that_the_annotation_does_not_repeat_are_those_of_the_affinity():
    data = written() | {"nodes": [], "listed": 2}
    names = [NodeTerm((), (requirement("metadata.name", "In", name),)) for name in ("n7", "n3", "n7")]
    others = [NodeTerm((requirement("zone", "In", "a"),)), NodeTerm((), (requirement("metadata.name", "NotIn", "n1"),))]
    found = read(json.dumps(data), Constraints(terms=(*names, *others)))
    assert (found.nodes, found.listed) == (("n7", "n3"), 2)
    assert (read(json.dumps(data)).nodes, read(json.dumps(data)).listed) == ((), 2)


def test_pods_with_the_same_text_have_the_nodes_of_their_own_affinity():
    text = json.dumps(written() | {"nodes": [], "listed": 1})
    each = [Constraints(terms=(NodeTerm((), (requirement("metadata.name", "In", name),)),)) for name in ("n7", "n3")]
    assert [read(text, constraints).nodes for constraints in each] == [("n7",), ("n3",)]
    assert read(text, each[0]).nodes == ("n7",)


def test_nodes_in_the_annotation_are_read_there():
    elsewhere = Constraints(terms=(NodeTerm((), (requirement("metadata.name", "In", "n7"),)),))
    found = read(json.dumps(written()), elsewhere)
    assert (found.nodes, found.listed) == (read(json.dumps(written())).nodes, 0)


@pytest.mark.parametrize("name", ["demand", "gpus", "mode", "nodes", "code", "policy", "at"])
def test_every_required_field_is_required(name):
    data = written()
    del data[name]
    assert read(json.dumps(data)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*written(), "pool", "model", "claims", "listed"], JSON)))
def test_no_data_is_an_error(changed):
    found = read(json.dumps(written() | changed))
    if found is not None:
        texts = (found.gpus, found.mode, *found.nodes, found.code, found.policy, found.at, *found.claims)
        assert {type(text) for text in texts} == {str}
        assert {(type(name), type(count)) for name, count in found.demand} <= {(str, int)}
        assert {type(text) for text in (found.pool, found.model, found.user)} <= {str, type(None)}


@given(st.text())
def test_other_text_is_not_a_decision(text):
    assert read(text) is None
