"""GPUs by DRA on a real API server: claims from templates, a shared claim, an extended resource that a class maps."""

import pytest

from tests.builders import decision_of
from tests.control_plane.api import ApiError
from tests.control_plane.minors import DEVICES, device, device_request, needs, needs_devices
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import evicted, evictor, held_nodes
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

DRIVER = "gpu.nvidia.com"


def device_class(name, **spec):
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def resource_slice(node, *, gpus):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [device(f"gpu-{number}", attributes={"type": {"string": "gpu"}}) for number in range(gpus)]
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def wanted(count):
    return {"devices": {"requests": [device_request("gpus", deviceClassName=DRIVER, count=count)]}}


def claiming(name, *, labels=None, **source):
    return pod(name, gpus=0, labels=labels, resourceClaims=[{"name": "gpus", **source}])


def refusal(cluster, namespace, made):
    with pytest.raises(ApiError) as refused:
        create_pod(cluster, namespace, made)
    return refused.value


@pytest.fixture
def with_devices(cluster):
    (name,) = make_nodes(cluster, 1, gpus=0)
    cluster.api.create(f"{DEVICES}/deviceclasses", device_class(DRIVER))
    cluster.api.create(f"{DEVICES}/resourceslices", resource_slice(name, gpus=8))
    return name


@pytest.mark.promise
@needs_devices
def test_claims_are_charged_a_shared_one_once_and_the_limit_holds_with_numbers(cluster, with_devices):
    with serve_fairgate(cluster, limit_a=20) as fairgate:
        ours = f"{DEVICES}/namespaces/{fairgate.team_a}"
        cluster.api.create(f"{ours}/resourceclaimtemplates", {"metadata": {"name": "two"}, "spec": {"spec": wanted(2)}})
        cluster.api.create(
            f"{ours}/resourceclaimtemplates", {"metadata": {"name": "lot"}, "spec": {"spec": wanted(17)}}
        )
        cluster.api.create(f"{ours}/resourceclaims", {"metadata": {"name": "shared"}, "spec": wanted(1)})

        wait_for(
            cluster,
            lambda: create_pod(cluster, fairgate.team_a, claiming("own", resourceClaimTemplateName="two")),
            what="the template reached Fairgate's watch",
        )
        wait_bound(cluster, fairgate.team_a, "own")
        decided = decision_of(get_pod(cluster, fairgate.team_a, "own"))
        assert (decided["gpus"], decided["nodes"]) == ("2", [with_devices])
        wait_for(cluster, lambda: fairgate.charged("a") == 2, what="two charged")

        for name in ("first", "second"):
            create_pod(cluster, fairgate.team_a, claiming(name, resourceClaimName="shared"))
            wait_bound(cluster, fairgate.team_a, name)
        wait_for(cluster, lambda: fairgate.charged("a") == 3, what="the shared claim charged once")
        cluster.kubectl("delete", "pod", "first", "-n", fairgate.team_a, "--wait=true")
        cluster.kubectl("delete", "pod", "own", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: fairgate.charged("a") == 1, what="the second pod is charged for the claim")

        create_pod(cluster, fairgate.team_a, claiming("large", resourceClaimTemplateName="lot"))
        refused = refusal(cluster, fairgate.team_a, claiming("more", resourceClaimTemplateName="lot"))
        assert refused.status == 403
        assert "exceeded quota: team a: requested 17, limit 20, used" in refused.message
        missing = refusal(cluster, fairgate.team_a, claiming("early", resourceClaimTemplateName="none"))
        assert (missing.status, missing.body["details"]["retryAfterSeconds"]) == (429, 1)
        assert f"not known yet: ResourceClaimTemplate {fairgate.team_a}/none" in missing.message


@needs_devices
@pytest.mark.usefixtures("with_devices")
def test_a_claim_that_pods_share_counts_once_for_the_whole_as_for_each_of_them(cluster):
    with serve_fairgate(cluster, policy="workloads: {onLimit: reject}") as fairgate:
        ours = f"{DEVICES}/namespaces/{fairgate.team_a}"
        cluster.api.create(f"{ours}/resourceclaims", {"metadata": {"name": "shared"}, "spec": wanted(8)})
        template = claiming("x", labels={"app": "shares"}, resourceClaimName="shared")
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "shares"}}, "template": template}
        made = {"metadata": {"name": "shares"}, "spec": spec}

        def is_created():
            cluster.api.create(f"/apis/apps/v1/namespaces/{fairgate.team_a}/deployments", made)
            return True

        wait_for(cluster, is_created, what="the claim reached Fairgate's watch")
        wait_for(cluster, lambda: len(list_pods(cluster, fairgate.team_a)) == 3, what="all pods are admitted")
        wait_for(cluster, lambda: fairgate.charged("a") == 8, what="the claim is charged once")
        assert fairgate.refused("TeamLimitExceeded") == 0


@needs_devices
def test_users_of_a_device_share_its_room_and_leave_it_together(cluster, with_devices):
    with serve_fairgate(cluster, limit_a=20, limit_b=20) as fairgate, evictor(fairgate):
        mine, theirs = fairgate.team_a, fairgate.team_b
        for namespace in (mine, theirs):
            made = f"{DEVICES}/namespaces/{namespace}/resourceclaimtemplates"
            cluster.api.create(made, {"metadata": {"name": "two"}, "spec": {"spec": wanted(2)}})
            cluster.api.create(made, {"metadata": {"name": "six"}, "spec": {"spec": wanted(6)}})
        cluster.api.create(
            f"{DEVICES}/namespaces/{mine}/resourceclaims", {"metadata": {"name": "shared"}, "spec": wanted(6)}
        )
        names = ["first", "second", "third"]
        for name in names:
            borrows = claiming(name, labels={TIER: "preemptible"}, resourceClaimName="shared")
            wait_for(cluster, lambda borrows=borrows: create_pod(cluster, mine, borrows), what="the claim is known")
            wait_bound(cluster, mine, name)
            assert decision_of(get_pod(cluster, mine, name))["nodes"] == [with_devices]
        create_pod(cluster, mine, claiming("own", resourceClaimTemplateName="two"))
        wait_bound(cluster, mine, "own")
        assert decision_of(get_pod(cluster, mine, "own"))["nodes"] == [with_devices], "two of eight are free"

        create_pod(cluster, theirs, claiming("large", resourceClaimTemplateName="six"))
        wait_bound(cluster, theirs, "large", timeout=90)
        assert sorted(evicted(cluster, mine, [*names, "own"])) == names
        wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")


@needs("1.36", "before, extended resources by Dynamic Resource Allocation are off by default")
def test_an_extended_resource_of_a_class_counts_once_beside_the_claim_that_kube_scheduler_makes(cluster, with_devices):
    cluster.api.patch(f"{DEVICES}/deviceclasses/{DRIVER}", {"spec": {"extendedResourceName": "nvidia.com/gpu"}})
    with serve_fairgate(cluster, limit_a=20) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("plain", gpus=3))
        wait_bound(cluster, fairgate.team_a, "plain")
        claims = cluster.api.list(f"{DEVICES}/namespaces/{fairgate.team_a}/resourceclaims")
        assert ["resource.kubernetes.io/extended-resource-claim" in c["metadata"]["annotations"] for c in claims] == [
            True
        ]
        wait_for(cluster, lambda: fairgate.charged("a") == 3, what="three charged")
        fairgate.wait_seen("a")
        decided = decision_of(get_pod(cluster, fairgate.team_a, "plain"))
        assert decided["nodes"] == [with_devices]
        refused = refusal(cluster, fairgate.team_a, pod("more", gpus=18))
        assert "exceeded quota: team a: requested 18, limit 20, used 3" in refused.message

        four = {f"deviceclass.resource.kubernetes.io/{DRIVER}": "4"}
        by_class = {"name": "main", "image": "example.invalid/train:1", "resources": {"requests": four, "limits": four}}
        create_pod(cluster, fairgate.team_a, pod("by-class", containers=[by_class]))
        wait_bound(cluster, fairgate.team_a, "by-class")
        wait_for(cluster, lambda: fairgate.charged("a") == 7, what="the four under the class's own name charged")
        create_pod(cluster, fairgate.team_a, pod("too-many", gpus=2))
        decided = decision_of(get_pod(cluster, fairgate.team_a, "too-many"))
        assert decided["nodes"] == [], "one is left, whichever name it is asked for by"


def test_slices_under_the_name_of_whole_gpus_count_as_slices(cluster):
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    (name,) = make_nodes(cluster, 1, gpus=147, labels=product)
    with serve_fairgate(cluster, limit_a=20) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("unnamed", gpus=71))
        wait_bound(cluster, fairgate.team_a, "unnamed")
        decided = decision_of(get_pod(cluster, fairgate.team_a, "unnamed"))
        assert (decided["gpus"], decided["nodes"]) == ("71/7", [name])
        create_pod(cluster, fairgate.team_a, pod("named", gpus=69, nodeSelector=product))
        wait_bound(cluster, fairgate.team_a, "named")
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="140 slices charged as 20 GPUs")
        refused = refusal(cluster, fairgate.team_a, pod("one-more", gpus=1))
        assert "exceeded quota: team a: requested 1/7, limit 20, used" in refused.message
