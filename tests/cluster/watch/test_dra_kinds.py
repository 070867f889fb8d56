"""The kinds of DRA, and PodGroups, from an API server into a world; and a server that has none of them."""

import pytest

from tests.cluster.support.fake_api import End
from tests.cluster.support.stores import FAST, until
from tests.cluster.watch.test_feed import feeding
from tests.core.support import make
from webhook.cluster.watch.feed import Feed
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.constraints import DomainRequest
from webhook.core.model.demand import ClaimRef
from webhook.core.model.pod import Replica
from webhook.kube.pod.gangs import gang_of_pod_group, group_of
from webhook.kube.watched.world_kinds import DEVICES
from webhook.policy.sections import BUILT_IN

VERSIONS = ("v1", "v1beta2", "v1beta1")
KINDS = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
GROUP = "/apis/resource.k8s.io"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
CLASS = "gpu.nvidia.com"


def paths(version):
    return [f"{GROUP}/{version}/{name}" for name in KINDS]


def only(api, *versions):
    """The server has these versions of the group and no other."""
    api.missing = {path for version in set(VERSIONS) - {*versions} for path in paths(version)}


def devices(number, version="v1"):
    wanted = {"deviceClassName": CLASS, "count": number}
    request = {"name": "gpus", **wanted} if version == "v1beta1" else {"name": "gpus", "exactly": wanted}
    return {"devices": {"requests": [request]}}


def slice_of(number, **more):
    pool = {"name": "n0", "generation": 1}
    listed = [{"name": f"d{i}"} for i in range(number)]
    return {"driver": CLASS, "nodeName": "n0", "pool": pool, "devices": listed} | more


@pytest.fixture
def place():
    made = make.world(make.policy(resources=BUILT_IN), nodes=[make.node("n0", gpus=0)])
    made.set_pod(make.resident(uid="a", demand=make.demand(0), claims=(ClaimRef(claim="shared"),)))
    group = ClaimRef(template="made", group="g", entry="gpus")
    for uid in ("b", "c"):
        made.set_pod(make.resident(uid=uid, demand=make.demand(0), claims=(group,)))
    return made


@pytest.fixture
def feed(connection, place):
    return Feed(connection, [row.watched(place) for row in DEVICES], pace=FAST)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_kind_reaches_the_world_and_leaves_it(api, feed, place, version):
    only(api, version)
    CLASSES, CLAIMS, TEMPLATES, SLICES = paths(version)  # noqa: N806  as the others

    def charged():
        return place.usage("team-a").total / ONE_GPU

    api.put(CLASSES, CLASS, spec={"extendedResourceName": make.GPU})
    api.put(SLICES, "s", spec=slice_of(4))
    api.put(CLAIMS, "shared", namespace="team-a", spec=devices(2, version))
    api.put(TEMPLATES, "made", namespace="team-a", spec={"spec": devices(3, version)})
    async with feeding(feed):
        await until(lambda: feed.readiness() is None)
        assert (charged(), place.fleet.free("n0", make.GPU)) == (8, 4)
        claims = [{"name": "gpus", "resourceClaimTemplateName": "made"}]
        api.put(GROUPS, "g", namespace="team-a", spec={"resourceClaims": claims})
        await until(lambda: charged() == 5)
        api.put(SLICES, "s", spec=slice_of(2))
        await until(lambda: place.fleet.free("n0", make.GPU) == 2)
        api.put(SLICES, "s", spec=slice_of(2, nodeName=None, allNodes=True))
        await until(lambda: place.fleet.free("n0", make.GPU) == 0)
        status = {"allocation": {"devices": {"results": [{"request": "gpus"}]}}}
        api.put(CLAIMS, "shared", namespace="team-a", spec=devices(2, version), status=status)
        await until(lambda: charged() == 4)
        for uid in "abc":
            place.remove_pod(uid)
        for path, name in ((CLASSES, CLASS), (SLICES, "s")):
            api.delete(path, name)
        for path, name in ((CLAIMS, "shared"), (TEMPLATES, "made"), (GROUPS, "g")):
            api.delete(path, name, namespace="team-a")
        refs = (ClaimRef(claim="shared"), ClaimRef(template="made"))

        def missing():
            return place.with_claims(make.pod(demand=make.demand(0), claims=refs, uid="a")).missing

        await until(lambda: missing() == ("ResourceClaim team-a/shared", "ResourceClaimTemplate team-a/made"))


async def test_a_pod_group_says_in_which_domain_its_gang_is(api, feed, place):
    gang = gang_of_pod_group("team-a", "g")
    api.put(GROUPS, "g", namespace="team-a", spec={"schedulingConstraints": {"topology": [{"key": "rack"}]}})
    async with feeding(feed):
        await until(lambda: gang in place.group_domains)
        assert place.group_domains[gang] == DomainRequest("rack", is_required=True)
        api.put(GROUPS, "g", namespace="team-a", spec={})
        await until(lambda: not place.group_domains)
        api.put(GROUPS, "g", namespace="team-a", spec={"schedulingConstraints": {"topology": [{"key": "zone"}]}})
        await until(lambda: place.group_domains)
        api.delete(GROUPS, "g", namespace="team-a")
        await until(lambda: not place.group_domains)


async def test_a_pod_group_says_how_many_of_its_pods_stay_together(api, feed, place):
    api.put(GROUPS, "g", namespace="team-a", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    workload = group_of("team-a", "g")
    place.minimums.set_pod("p", Replica(workload), is_ready=True)

    def minimum():
        found = place.minimums.of(workload)
        return None if found is None else found.minimum

    async with feeding(feed):
        await until(lambda: minimum() == 2)
        api.put(GROUPS, "g", namespace="team-a", spec={"schedulingPolicy": {"gang": {"minCount": 3}}})
        await until(lambda: minimum() == 3)
        api.put(GROUPS, "g", namespace="team-a", spec={"schedulingPolicy": {"basic": {}}})
        await until(lambda: minimum() is None)
        api.put(GROUPS, "g", namespace="team-a", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
        await until(lambda: minimum() == 2)
        api.delete(GROUPS, "g", namespace="team-a")
        await until(lambda: minimum() is None)


async def test_an_object_of_another_kind_of_that_name_says_nothing_and_does_not_block_startup(api, feed, place):
    api.put(GROUPS, "foreign", namespace="team-a", spec="gold")
    api.put(GROUPS, "odd", namespace="team-a", spec={"schedulingConstraints": {"topology": "rack"}})
    api.put(GROUPS, "g", namespace="team-a", spec={"schedulingConstraints": {"topology": [{"key": "rack"}]}})
    async with feeding(feed):
        await until(lambda: feed.readiness() is None)
        assert set(place.group_domains) == {gang_of_pod_group("team-a", "g")}


async def test_a_server_without_these_kinds_has_none_and_does_not_block_startup(api, feed, place):
    only(api)
    api.missing.add(GROUPS)
    async with feeding(feed):
        await until(lambda: feed.readiness() is None)
    assert place.usage("team-a").total == 0


async def test_an_upgrade_that_moves_the_kinds_to_another_version_loses_nothing(api, feed, place):
    claims_before, claims_after = paths("v1beta1")[1], paths("v1")[1]

    def known():
        return ClaimKey("claim", "team-a", "other") in place.claims

    only(api, "v1beta1")
    before = api.put(claims_before, "other", namespace="team-a", spec=devices(2, "v1beta1"))
    async with feeding(feed):
        await until(known)
        same = {"uid": before["metadata"]["uid"]}
        api.put(claims_after, "other", namespace="team-a", metadata=same, spec=devices(3))
        asked = len(api.asked)
        only(api, "v1")
        api.disturb(End())
        await until(lambda: any(each.path == claims_after for each in api.asked[asked:]))
        await until(lambda: feed.readiness() is None and known())
        api.delete(claims_after, "other", namespace="team-a")
        await until(lambda: not known())


async def test_a_rule_closes_devices_and_opens_them_again(api, feed, place):
    CLASSES, _, _, SLICES = paths("v1")  # noqa: N806  as the others
    rules = f"{GROUP}/v1/devicetaintrules"
    api.put(CLASSES, CLASS, spec={"extendedResourceName": make.GPU})
    api.put(SLICES, "s", spec=slice_of(4))
    taint = {"key": "worn", "effect": "NoSchedule"}
    async with feeding(feed):
        await until(lambda: place.fleet.free("n0", make.GPU) == 4)
        api.put(rules, "r", spec={"deviceSelector": {"pool": "n0", "device": "d0"}, "taint": taint})
        await until(lambda: place.fleet.free("n0", make.GPU) == 3)
        api.put(rules, "r", spec={"deviceSelector": {"pool": "n0"}, "taint": taint | {"effect": "None"}})
        await until(lambda: place.fleet.free("n0", make.GPU) == 4)
        api.put(rules, "r", spec={"deviceSelector": {}, "taint": taint})
        await until(lambda: place.fleet.free("n0", make.GPU) == 0)
        api.delete(rules, "r")
        await until(lambda: place.fleet.free("n0", make.GPU) == 4)
