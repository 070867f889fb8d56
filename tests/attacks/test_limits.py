"""A namespace admin tries to hold more GPUs than its team's limits allow: by names, by nodes, by claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.cleanup import Snapshot
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.minors import DEVICES, DEVICES_API, HAS_DEVICES, device, device_request, needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import get_pod, list_pods, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate

pytestmark = pytest.mark.cluster
needs_claims = needs("1.34", "in 1.32, ClusterRole admin has no right to claims: this attacker cannot make one")

LIMIT = 20
MODEL = "nvidia.com/gpu.product"
DRIVER = "gpu.nvidia.com"
POLICY = """\
defaults: {shareSchedulers: [hami-scheduler]}
resources: {nvidia.com/gpumem: {perGpu: 81920}}
pools:
  - {name: common, nodeSelector: {pool: common}}
  - {name: closed, nodeSelector: {pool: closed}, teams: [b]}
"""
PICKY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: picky, namespaces: [NAMESPACE], gpus: {limit: 40}, models: {H100: {limit: 2}}}
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A team of limit 20 with one pool, another with a limit of 2 on H100, and an admin of each namespace."""

    fairgate: FairgateServer
    mallory: Attacker
    picky: Attacker
    open_node: str
    closed_node: str

    @property
    def cluster(self) -> ControlPlane:
        return self.fairgate.cluster


@pytest.fixture(scope="module")
def site(control_plane: ControlPlane) -> Iterator[Site]:
    control_plane.vacate()
    before = Snapshot.take(control_plane)
    yield from _site(control_plane)
    before.restore(control_plane)


def _site(cluster: ControlPlane) -> Iterator[Site]:
    (open_node,) = make_nodes(cluster, 1, prefix="open", gpus=60, labels={"pool": "common", MODEL: "H100"})
    (closed_node,) = make_nodes(cluster, 1, prefix="closed", gpus=60, labels={"pool": "closed", MODEL: "A100"})
    if HAS_DEVICES:
        offer_devices(cluster, open_node)
    with serve_fairgate(cluster, limit_a=LIMIT, policy=POLICY) as fairgate:
        namespace = make_namespace(cluster)
        (fairgate.policy / "picky.yaml").write_text(PICKY.replace("NAMESPACE", namespace))
        picky = make_attacker(cluster, namespace, "trudy")
        mallory = make_attacker(cluster, fairgate.team_a)
        probe = pod("probe", gpus=1, nodeName=closed_node)
        wait_for(cluster, lambda: "(NoPoolAllowed)" in picky.create(probe, "--dry-run=server").stderr, what="policy")
        yield Site(fairgate, mallory, picky, open_node, closed_node)


@pytest.fixture
def nothing_left(site: Site) -> Iterator[None]:
    """Delete what an attack made."""
    yield
    kinds = "pods,resourceclaims,resourceclaimtemplates" if HAS_DEVICES else "pods"
    for attacker in (site.mallory, site.picky):
        attacker.kubectl("delete", kinds, "--all", "--wait=true")  # by force, charges would last for a grace period
    wait_for(site.cluster, lambda: site.fairgate.charged("a") == 0 == site.fairgate.charged("picky"), what="all ended")


def driver_is(driver: str) -> dict[str, object]:
    return {"cel": {"expression": f'device.driver == "{driver}"'}}


def asking(name: str, resources: dict[str, str], **spec: object) -> dict[str, object]:
    """A pod of one container with these limits only."""
    made = pod(name, **spec)
    made["spec"]["containers"][0]["resources"] = {"limits": resources}
    return made


def offer_devices(cluster: ControlPlane, node: str) -> None:
    for name, selectors in ((DRIVER, [driver_is(DRIVER)]), ("anything", [])):
        cluster.api.create(f"{DEVICES}/deviceclasses", {"metadata": {"name": name}, "spec": {"selectors": selectors}})
    offered = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [device(f"gpu-{number}") for number in range(60)],
    }
    cluster.api.create(f"{DEVICES}/resourceslices", {"metadata": {"name": "gpus"}, "spec": offered})


def claim(kind: str, name: str, count: int, *, device_class: str = DRIVER, **exactly: object) -> dict[str, object]:
    wanted = device_request("gpus", deviceClassName=device_class, count=count, **exactly)
    spec: dict[str, object] = {"devices": {"requests": [wanted]}}
    spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": DEVICES_API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def claiming(name: str, *, gate: bool = False, **source: str) -> dict[str, object]:
    gates = {"schedulingGates": [{"name": "example.com/mine"}]} if gate else {}
    return pod(name, resourceClaims=[{"name": "gpus", **source}], **gates)


def let_go(attacker: Attacker, name: str) -> None:
    """Remove the pod's own scheduling gate, as its owner may."""
    attacker.kubectl("patch", "pod", name, "--type=json", "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]')


def allocated(site: Site) -> int:
    """How many devices all claims of the attacker hold."""
    found = site.cluster.api.list(f"{DEVICES}/namespaces/{site.mallory.namespace}/resourceclaims")
    results = [each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []) for each in found]
    return sum(map(len, results))


def wait_refused_allocation(site: Site, name: str) -> None:
    """Wait until kube-scheduler received the refusal, which it writes into the pod's condition."""

    def message() -> bool:
        found = get_pod(site.cluster, site.mallory.namespace, name)
        conditions = found.get("status", {}).get("conditions", [])
        return any("ClaimChanged" in each.get("message", "") for each in conditions)

    wait_for(site.cluster, message, what=f"the refusal of {name}'s claim")


# -- by names


@pytest.mark.parametrize(
    ("share", "spec"),
    [
        ({"nvidia.com/gpumem-percentage": "0"}, {}),
        ({"nvidia.com/gpumem-percentage": "0"}, {"schedulerName": "hami-scheduler"}),
        ({"nvidia.com/gpumem": "1"}, {"schedulerName": "other"}),
        ({"nvidia.com/gpucores": "0", "nvidia.com/gpumem": "0"}, {}),
        ({"nvidia.com/gpumem-percentage": "1"}, {"nodeName": "open-0"}),
    ],
    ids=["a zero", "a zero for HAMi", "another scheduler", "two zeros", "nodeName"],
)
def test_an_unenforced_share_counts_as_whole_gpus(site: Site, share: dict[str, str], spec: dict[str, str]):
    made = asking("many", {"nvidia.com/gpu": "21", **share}, **spec)
    assert "requested 21, limit 20" in site.mallory.refused(made, code="TeamLimitExceeded")


def test_a_share_for_hami_on_a_node_of_the_attackers_choice_is_refused(site: Site):
    share = {"nvidia.com/gpu": "21", "nvidia.com/gpumem-percentage": "1"}
    site.mallory.refused(
        asking("p", share, schedulerName="hami-scheduler", nodeName=site.open_node), code="InvalidRequest"
    )


# -- by nodes


@pytest.mark.usefixtures("nothing_left")
def test_node_name_bypasses_neither_the_limit_of_a_model_nor_the_teams_of_a_pool(site: Site):
    site.picky.refused(pod("six", gpus=6, nodeName=site.open_node), code="ModelLimitExceeded")
    site.picky.create_pod(pod("two", gpus=2, nodeName=site.open_node))
    site.picky.refused(pod("third", gpus=1, nodeName=site.open_node), code="ModelLimitExceeded")
    site.mallory.refused(pod("p", gpus=1, nodeName=site.closed_node), code="NoPoolAllowed")


@pytest.mark.usefixtures("nothing_left")
def test_another_scheduler_or_a_forged_daemon_set_does_not_either(site: Site):
    forged = pod("daemon", gpus=3, nodeSelector={"pool": "common"})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    forged["metadata"]["ownerReferences"] = [owner]
    site.picky.refused(forged, code="ModelLimitExceeded")
    own = {"schedulerName": "mine", "nodeSelector": {"pool": "common"}}
    site.picky.create_pod(pod("waits", gpus=2, **own))
    wait_for(site.cluster, lambda: site.fairgate.charged("picky") == 2, what="the watch shows it")
    site.picky.refused(pod("waits-too", gpus=1, **own), code="ModelLimitExceeded")
    site.mallory.refused(pod("p", gpus=1, schedulerName="mine"), code="NoPoolAllowed")


# -- by claims


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_claim_that_grows_after_the_decision_gets_no_devices(site: Site):
    site.mallory.create(claim("ResourceClaim", "mine", 1))
    site.cluster.pause("kube-scheduler")
    wait_admitted(site, claiming("first", resourceClaimName="mine"))
    site.mallory.kubectl("delete", "resourceclaim", "mine")
    site.mallory.create(claim("ResourceClaim", "mine", 25))
    site.cluster.resume("kube-scheduler")
    wait_refused_allocation(site, "first")
    assert allocated(site) == 0


@needs_claims
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("is_owned", [False, True], ids=["annotation", "annotation and owner"])
def test_claims_that_grow_and_pose_as_kube_schedulers_own_get_no_devices(site: Site, *, is_owned: bool):
    """kube-scheduler marks the claims that it makes for container requests, which count there; a tenant may as well."""
    names = [f"c{number}" for number in range(4)]
    for name in names:
        site.mallory.create(claim("ResourceClaim", name, 1))
    site.cluster.pause("kube-scheduler")
    made = pod("first", resourceClaims=[{"name": f"d{name}", "resourceClaimName": name} for name in names])
    wait_admitted(site, made)
    uid = get_pod(site.cluster, site.mallory.namespace, "first")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid, "controller": True}
    for name in names:
        site.mallory.kubectl("delete", "resourceclaim", name)
        forged = claim("ResourceClaim", name, 4)
        forged["metadata"] |= {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}
        forged["metadata"] |= {"ownerReferences": [owner]} if is_owned else {}
        assert site.mallory.create(forged).returncode == 0
    site.cluster.resume("kube-scheduler")
    wait_refused_allocation(site, "first")
    assert allocated(site) == 0


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_claim_that_grew_gets_no_devices_after_its_pod_made_way_for_another(site: Site):
    """The second pod joins the claim that grew: it is charged nothing, until the first is gone."""
    site.mallory.create(claim("ResourceClaim", "mine", 1))
    first, second = (claiming(name, resourceClaimName="mine") for name in ("first", "second"))
    for each in (first, second):
        each["spec"]["nodeSelector"] = {"later": "yes"}  # no node has the label yet
    wait_admitted(site, first)
    wait_for(site.cluster, lambda: site.fairgate.charged("a") == 1, what="the first is charged")
    site.mallory.kubectl("delete", "resourceclaim", "mine")
    site.mallory.create(claim("ResourceClaim", "mine", 12))
    wait_for(site.cluster, lambda: site.fairgate.charged("a") == 12, what="the charge follows")
    assert site.mallory.create(second).returncode == 0
    site.mallory.kubectl("delete", "pod", "first", "--wait=true")
    site.cluster.kubectl("label", "node", site.open_node, "later=yes")
    wait_refused_allocation(site, "second")
    assert allocated(site) == 0


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_an_identical_recreated_claim_gets_its_devices(site: Site):
    site.mallory.create(claim("ResourceClaim", "mine", 2))
    site.cluster.pause("kube-scheduler")
    wait_admitted(site, claiming("first", resourceClaimName="mine"))
    site.mallory.kubectl("delete", "resourceclaim", "mine")
    site.mallory.create(claim("ResourceClaim", "mine", 2))
    site.cluster.resume("kube-scheduler")
    wait_bound(site.cluster, site.mallory.namespace, "first")
    assert allocated(site) == 2


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_template_that_grows_after_the_decision_gets_no_devices(site: Site):
    site.mallory.create(claim("ResourceClaimTemplate", "made", 1))
    site.cluster.pause("kube-scheduler")
    site.cluster.pause("kube-controller-manager")  # makes the claim from the template, when it knows the new one
    wait_admitted(site, claiming("first", resourceClaimTemplateName="made"))
    site.mallory.kubectl("delete", "resourceclaimtemplate", "made")
    site.mallory.create(claim("ResourceClaimTemplate", "made", 25))
    site.cluster.restart("kube-controller-manager")
    site.cluster.resume("kube-scheduler")
    wait_refused_allocation(site, "first")
    assert allocated(site) == 0


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_class_without_a_driver_still_counts_as_gpus(site: Site):
    picked = claim("ResourceClaimTemplate", "any", 25, device_class="anything", selectors=[driver_is(DRIVER)])
    site.mallory.create(picked)
    refused = wait_known(site, claiming("p", resourceClaimTemplateName="any"))
    assert "requested 25, limit 20" in refused
    assert "(TeamLimitExceeded)" in refused


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_claim_of_something_else_does_not_turn_into_gpus(site: Site):
    disks = claim("ResourceClaim", "mine", 1, device_class="anything", selectors=[driver_is("disk.example.com")])
    site.mallory.create(disks)
    wait_known(site, claiming("first", gate=True, resourceClaimName="mine"))
    site.mallory.create(claiming("first", gate=True, resourceClaimName="mine"))
    site.mallory.kubectl("delete", "resourceclaim", "mine")
    site.mallory.create(claim("ResourceClaim", "mine", 4))
    let_go(site.mallory, "first")
    wait_refused_allocation(site, "first")
    assert allocated(site) == 0


@needs_claims
@pytest.mark.usefixtures("nothing_left")
def test_a_forged_decision_on_a_pod_without_gpus_is_taken_off(site: Site):
    forged = pod("p", labels={"fairgate.dev/team": "a"}, annotations={"fairgate.dev/decision": '{"gpus":"25"}'})
    disks = claim("ResourceClaim", "mine", 1, device_class="anything", selectors=[driver_is("disk.example.com")])
    site.mallory.create(disks)
    forged["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": "mine"}]
    wait_known(site, claiming("probe", resourceClaimName="mine"))
    site.mallory.create(forged)
    found = site.mallory.api.get(f"/api/v1/namespaces/{site.mallory.namespace}/pods/p")["metadata"]
    assert not [key for key in (*found.get("labels", {}), *found.get("annotations", {})) if "fairgate.dev" in key]


def wait_known(site: Site, made: dict[str, object]) -> str:
    """Create a pod until Fairgate knows its claims, and return the message."""

    def message() -> str | None:
        stderr = site.mallory.create(made, "--dry-run=server").stderr
        return None if "(ClaimUnknown)" in stderr else stderr or " "

    return wait_for(site.cluster, message, what="Fairgate knows the claim")


def wait_admitted(site: Site, made: dict[str, object]) -> None:
    wait_known(site, made)
    done = site.mallory.create(made)
    assert done.returncode == 0, done.stderr
    assert list_pods(site.cluster, site.mallory.namespace)
