"""A pod that asks for no GPU model, where the nodes that it may use have several: it is warned, and never refused."""

import pytest

from tests.core.support.make import node, pod, policy, pool, world
from webhook.core.admission.admission import admit
from webhook.core.admission.workload_fit import Part, fit_problems
from webhook.core.model.constraints import Constraints, NodeTerm, Operator, Requirement
from webhook.core.model.decision import Admit
from webhook.core.model.pod import CONTROLLER, Requester
from webhook.core.model.reasons import Code

MODEL = "nvidia.com/gpu.product"
ALICE = Requester("alice")
POOLS = (pool("small", node_selector=(("at", "t4"),)), pool("large", node_selector=(("at", "a100"),)))


def machine(name, model, gpus=8):
    return node(name, gpus=gpus, model=model, model_label=MODEL, labels={MODEL: model, "at": name})


MIXED = [machine("t4", "Tesla-T4"), machine("a100", "A100")]


def warned(asked, nodes=MIXED, **rules):
    decision = admit(asked, ALICE, world(policy(**rules), nodes))
    assert isinstance(decision, Admit)
    return [each.text for each in decision.warnings if each.code is Code.ANY_MODEL]


def affine(operator, *values):
    return Constraints(terms=(NodeTerm((Requirement(MODEL, operator, values),)),))


def test_a_pod_that_may_run_on_several_models_is_warned():
    want = (
        "it asks for no GPU model and may run on any of A100, Tesla-T4: name one by nodeSelector nvidia.com/gpu.product"
    )
    assert warned(pod(1)) == [want]


@pytest.mark.parametrize(
    ("asked", "rules"),
    [
        pytest.param(pod(1, constraints=Constraints(node_selector=((MODEL, "A100"),))), {}, id="a node selector"),
        pytest.param(
            pod(1, constraints=affine(Operator.IN, "A100", "Tesla-T4")), {}, id="an affinity that allows both"
        ),
        pytest.param(pod(1, constraints=Constraints(node_selector=(("at", "t4"),))), {}, id="nodes of one model"),
        pytest.param(pod(1, pool="small"), {"pools": POOLS}, id="a pool"),
        pytest.param(pod(1), {"pools": POOLS[:1]}, id="the only pool has one model"),
        pytest.param(pod(0), {}, id="no GPU"),
    ],
)
def test_no_warning_where_one_is_asked_for_or_there_is_but_one(asked, rules):
    place = world(policy(**rules), MIXED)
    found = getattr(admit(asked, ALICE, place), "warnings", ())
    assert [each for each in found if each.code is Code.ANY_MODEL] == []


def test_models_that_could_not_hold_the_pod_do_not_count():
    assert warned(pod(4), [machine("t4", "Tesla-T4", gpus=2), machine("a100", "A100")]) == []
    assert warned(pod(1), [machine("a100", "A100"), machine("b", "A100")]) == []


def test_a_workload_is_warned_once_and_its_limit_is_not_what_is_broken():
    place = world(policy(), MIXED)
    asked = pod(1, owner=None)
    found = fit_problems([Part("", asked, 2), Part("worker", asked, 2)], CONTROLLER, place)
    assert [each.code for each in found] == [Code.ANY_MODEL]
