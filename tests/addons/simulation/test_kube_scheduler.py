"""The stand-in for kube-scheduler: what the webhook wrote on a pod holds, and free room decides on the rest."""

from dataclasses import replace

import pytest

from tests.addons.simulation.loads import GPU, T0, policy_of, simulated, task, team, world_of
from webhook.addons.simulation.cluster import Binding, binding_for, patched_constraints, with_hold
from webhook.addons.simulation.engine import Simulation
from webhook.core.model.amounts import GpuModel, NodeName, PoolName
from webhook.core.model.constraints import HELD, Effect, NodeTerm, Operator, Requirement, Taint, Toleration
from webhook.core.model.decision import NodeChoice
from webhook.core.model.policy import Mode, Pool

POD = task("t", "a", 1).pod
MODEL = "nvidia.com/gpu.product"


def wants(key, *values):
    return Requirement(key, Operator.IN, values)


def allowed(constraints, name="n", **labels):
    terms = constraints.terms
    return terms is None or any(term.matches(name, labels) for term in terms)


def test_without_a_choice_the_pod_keeps_its_own_constraints():
    own = replace(POD.constraints, node_selector=(("a", "b"),))
    assert patched_constraints(POD._replace(constraints=own), NodeChoice(Mode.OFF)) == own


@pytest.mark.parametrize(("mode", "is_bound"), [(Mode.AUTO, True), (Mode.REQUIRE, True), (Mode.PREFER, False)])
def test_named_nodes_bind_a_pod_unless_they_are_preferred(mode, is_bound):
    found = patched_constraints(POD, NodeChoice(mode, (NodeName("one"), NodeName("two"))))
    assert allowed(found, "one")
    assert allowed(found, "two")
    assert allowed(found, "three") is not is_bound


def test_a_pool_is_added_to_every_term_of_the_pod():
    own = replace(POD.constraints, terms=(NodeTerm((wants("zone", "x"),)), NodeTerm((wants("zone", "y"),))))
    choice = NodeChoice(Mode.AUTO, (NodeName("n"),), pool_terms=((wants(MODEL, "A"),), (wants(MODEL, "B"),)))
    found = patched_constraints(POD._replace(constraints=own), choice)
    assert allowed(found, zone="y", **{MODEL: "A"})
    assert not allowed(found, zone="z", **{MODEL: "A"})
    assert not allowed(found, zone="x", **{MODEL: "C"})
    assert not allowed(found, "other", zone="x", **{MODEL: "A"})


def test_the_emptiest_node_by_cpu_and_memory_is_taken_and_one_node_is_no_choice():
    world = world_of(policy_of(team("a", 16)), nodes=2)
    assert binding_for(POD, POD.constraints, world.fleet) == Binding("node-0", is_free_choice=True)
    Simulation(world, [task("first", "a", 8, seconds=100)]).run(until=T0)
    assert binding_for(POD, POD.constraints, world.fleet) == Binding("node-1", is_free_choice=False)
    assert binding_for(task("t", "a", 9).pod, POD.constraints, world.fleet) is None


def test_held_room_is_for_the_pod_that_it_is_held_for():
    world = world_of(policy_of(team("a", 8)))
    [node] = world.fleet.nodes()
    world.set_node(replace(node, taints=(Taint(HELD, Effect.NO_SCHEDULE, "7"),)))
    assert binding_for(POD, POD.constraints, world.fleet) is None
    assert binding_for(POD, with_hold(POD.constraints, "7"), world.fleet) is not None
    assert binding_for(POD, with_hold(POD.constraints, "8"), world.fleet) is None


def test_pools_and_shares_of_models_hold_in_a_run():
    pools = (Pool(PoolName("a100"), ((MODEL, "A100"),)), Pool(PoolName("h100"), ((MODEL, "H100"),)))
    tolerations = (Toleration("gpu", exists=True),)
    pools = tuple(
        replace(pool, tolerations=tolerations, teams=frozenset({name})) for pool, name in zip(pools, "ab", strict=True)
    )
    world = world_of(policy_of(team("a", 8), team("b", 8), pools=pools), nodes=2)
    for node, model in zip(list(world.fleet.nodes()), ("A100", "H100"), strict=True):
        labels, taint = {MODEL: model}, Taint("gpu", Effect.NO_SCHEDULE)
        world.set_node(replace(node, labels=labels, model=GpuModel(model), model_label=MODEL, taints=(taint,)))
    tasks = [task(f"{name}{n}", name, 8, at=n, seconds=50) for name in "ab" for n in range(2)]
    records, _ = simulated(world, *tasks)
    assert {name: (record.node, record.wait_seconds) for name, record in records.items()} == {
        "a0": ("node-0", 0),
        "a1": ("node-0", 49),
        "b0": ("node-1", 0),
        "b1": ("node-1", 49),
    }
    assert world.fleet.free(NodeName("node-0"), GPU) == 8
