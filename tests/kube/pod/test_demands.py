"""The demand of pods, in exact integers."""

from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.kube.support.created import pod_of, resources, with_resources
from tests.realistic import realistic_pod
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.demand import Container, pod_requests
from webhook.kube.objects import bounds


def test_demand_of_containers_and_init_container():
    pod = pod_of(realistic_pod(gpus=2))
    assert pod.demand.gpus == 2 * ONE_GPU
    assert pod.demand.devices == (("nvidia.com/gpu", 2),)
    assert dict(pod.demand.requests) == {
        "cpu": 6050,
        "memory": 48 * 2**30 + 64 * 2**20,
        "nvidia.com/gpu": 2,
        "pods": 1,
    }


def test_requests_default_to_limits_resource_by_resource():
    pod = pod_of(with_resources({"cpu": "1"}, {"cpu": "4", "memory": "8Gi", b.GPU: 3}))
    assert dict(pod.demand.requests) == {"cpu": 1000, "memory": 8 * 2**30, b.GPU: 3, "pods": 1}


def test_sidecars_are_counted_and_init_containers_only_at_their_peak():
    manifest = b.pod(
        gpus=1,
        initContainers=[
            b.container("proxy", gpus=1, restartPolicy="Always"),
            b.container("warm-up", gpus=4),
        ],
    )
    assert pod_of(manifest).demand.devices == ((b.GPU, 5),)


def test_overhead_is_added():
    pod = pod_of(b.pod(overhead={"cpu": "250m", "memory": "120Mi"}))
    assert dict(pod.demand.requests)["cpu"] == 6250


def test_pod_level_requests_replace_the_sum_for_cpu_and_memory_only():
    manifest = with_resources({"cpu": "1", "memory": "1Gi"}, {b.GPU: 1}, resources=resources({"cpu": "9"}))
    assert dict(pod_of(manifest).demand.requests) == {"cpu": 9000, "memory": 2**30, b.GPU: 1, "pods": 1}


def test_pod_level_limits_are_requests_if_no_container_has_one():
    manifest = with_resources({"cpu": "1"}, {b.GPU: 1}, resources=resources(None, {"cpu": "9", "memory": "2Gi"}))
    assert dict(pod_of(manifest).demand.requests) == {"cpu": 1000, "memory": 2 * 2**30, b.GPU: 1, "pods": 1}


def test_a_pod_without_resources_counts_as_one_pod_of_its_node():
    pod = pod_of(b.pod(containers=[{"name": "web"}]))
    assert (pod.demand.gpus, pod.demand.requests) == (0, (("pods", 1),))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.booleans()), max_size=3),
)
def test_demand_is_the_core_formula_over_the_containers(app, init):
    manifest = b.pod(
        containers=[b.container(f"c{i}", gpus=gpus, cpu=str(cpu)) for i, (gpus, cpu) in enumerate(app)],
        initContainers=[
            b.container(f"i{i}", gpus=gpus, cpu=str(cpu), **({"restartPolicy": "Always"} if is_sidecar else {}))
            for i, (gpus, cpu, is_sidecar) in enumerate(init)
        ],
    )

    def core(gpus, cpu, is_restartable=False):
        return Container({b.GPU: gpus, "cpu": 1000 * cpu, "memory": 48 * 2**30}, is_restartable)

    want = pod_requests([core(*c) for c in app], init=[core(*c) for c in init]) | {"pods": 1}
    assert dict(pod_of(manifest).demand.requests) == {name: n for name, n in want.items() if n}


def test_changed_weights_change_the_demand():
    manifest = b.pod(resource="example.com/npu", gpus=2)
    assert pod_of(manifest).demand.gpus == 0
    assert pod_of(manifest, {"example.com/npu": ONE_GPU // 2}).demand.gpus == ONE_GPU
    for share in range(1, 20):  # more policies than are cached at a time
        assert pod_of(manifest, {"example.com/npu": share}).demand.gpus == 2 * share
    assert pod_of(manifest).demand.gpus == 0


def test_demands_are_cached_by_template_and_evicted():
    first = pod_of(realistic_pod(index=1))
    assert pod_of(realistic_pod(index=2)).demand is first.demand
    for cpu in range(200):
        others = [b.container(f"c{n}", gpus=None, cpu=f"{cpu}m") for n in range(100)]
        assert pod_of(b.pod(containers=[b.container(), *others])).demand.gpus == ONE_GPU
    again = pod_of(realistic_pod(index=3)).demand
    assert again == first.demand
    assert again is not first.demand


def test_a_pod_with_many_containers_is_not_cached():
    manifest = b.pod(containers=[b.container(f"c{i}", gpus=None, cpu=f"{i}m") for i in range(400)])
    first, again = pod_of(manifest).demand, pod_of(manifest).demand
    assert first == again
    assert first is not again


def with_ports(*ports, **more):
    listed = [{"containerPort": 80, **port} for port in ports]
    return b.pod(containers=[{"name": "main", "resources": resources(), "ports": listed}], **more)


def ports_of(manifest):
    return [name for name, _ in pod_of(manifest).demand.requests if name.startswith("host port")]


def test_host_ports_are_taken_on_all_addresses_of_a_node():
    found = with_ports(
        {"hostPort": 80}, {}, {"hostPort": 53, "protocol": "UDP"}, {"hostPort": 81, "hostIP": "10.0.0.1"}
    )
    assert ports_of(found) == ["host port 53 (UDP)", "host port 80 (TCP)"]


def test_ports_of_init_containers_count_if_they_run_on():
    init = [
        {"name": name, "resources": resources(), "ports": [{"containerPort": port, "hostPort": port}], **more}
        for name, port, more in (("once", 80, {}), ("sidecar", 81, {"restartPolicy": "Always"}))
    ]
    assert ports_of(b.pod(initContainers=init)) == ["host port 81 (TCP)"]


def test_only_some_of_a_pods_host_ports_count():
    assert len(ports_of(with_ports(*({"hostPort": port} for port in range(1, 2000))))) == bounds.HOST_PORTS
