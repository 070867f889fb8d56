"""The demand formula against Kubernetes' own, written a second time straight from its source."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU
from webhook.core.model.amounts import CPU, MEMORY, ONE_GPU, ResourceName
from webhook.core.model.demand import Container, demand_of, pod_requests

NAMES = [CPU, MEMORY, GPU]
amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 50))
containers = st.lists(st.builds(Container, amounts), max_size=4)
init_containers = st.lists(st.builds(Container, amounts, st.booleans()), max_size=5)


def reference(name: ResourceName, app: list[Container], init: list[Container], overhead: dict) -> int:
    """AggregateContainerRequests of k8s.io/component-helpers for one resource, by its comment."""
    total = sum(c.requests.get(name, 0) for c in app) + sum(c.requests.get(name, 0) for c in init if c.is_restartable)
    for position, container in enumerate(init):
        before = sum(c.requests.get(name, 0) for c in init[:position] if c.is_restartable)
        total = max(total, before + container.requests.get(name, 0))
    return total + overhead.get(name, 0)


@given(containers, init_containers, amounts)
def test_follows_the_formula_of_kubernetes(app, init, overhead):
    got = pod_requests(app, init=init, overhead=overhead)
    assert {name: got.get(name, 0) for name in NAMES} == {name: reference(name, app, init, overhead) for name in NAMES}


def test_a_sidecar_runs_beside_the_init_containers_after_it():
    init = [Container({GPU: 1}, is_restartable=True), Container({GPU: 4})]
    assert pod_requests([Container({GPU: 2})], init=init) == {GPU: 5}


def test_pod_level_requests_replace_the_sum_for_what_they_name():
    got = pod_requests([Container({CPU: 500, GPU: 1})], pod_level={CPU: 2000}, overhead={CPU: 100})
    assert got == {CPU: 2100, GPU: 1}


def test_seven_slices_are_one_gpu_exactly():
    name = ResourceName("nvidia.com/mig-1g.5gb")
    assert demand_of({name: 7}, {name: ONE_GPU // 7}).gpus == ONE_GPU


def test_only_what_policy_weighs_is_a_gpu():
    got = demand_of({CPU: 1000, GPU: 2, ResourceName("example.com/fpga"): 1}, {GPU: ONE_GPU})
    assert (got.gpus, got.devices) == (2 * ONE_GPU, ((GPU, 2),))
