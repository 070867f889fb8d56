"""Which waiting pods are targets."""

from tests.core.support.make import ALICE, gpus, pod, policy, resident, team, world
from webhook.addons.moves.targets import target_in_line, target_of_scheduler, target_to_come
from webhook.core.model.amounts import GangId, TeamName
from webhook.core.model.constraints import DomainRequest, Gang
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.world.waiting_pods import WaitingPod

RACK = DomainRequest("rack", is_required=True)
GANG = Gang(GangId("g"), "g", 2, is_requested=True, domain=RACK)


def in_line(count=4, cluster=None, **more):
    wanted = pod(count, name="a", uid="uid-a", gang=more.pop("gang", None), foreign_gates=more.pop("gates", ()))
    return target_in_line(WaitingPod(wanted, TeamName("team-a"), created=7, **more), cluster or world())


def with_scheduler(cluster=None, **more):
    report = more.pop("report", SchedulerReport(9, is_for_room=True))
    gpu_pod = ReclaimPod(resident(uid="a"), report=report, **more)
    return target_of_scheduler(gpu_pod, pod(4, name="a"), cluster or world())


def test_a_pod_group_asks_for_the_domain_of_its_gang():
    cluster = world()
    cluster.group_domains[GANG.id] = RACK
    assert in_line(cluster=cluster, gang=GANG._replace(domain=None)).domain == RACK
    assert with_scheduler(cluster, gang=GANG.id).domain == RACK


def test_a_pod_to_come_has_not_waited():
    found = target_to_come(pod(4, name="a"), ALICE, world())
    assert (found.since, found.name) == (0, "team-a/a")
    assert target_to_come(pod(4, name="a"), ALICE, world(policy(team(limit_=3, guaranteed=1)))) is None


def test_a_pod_in_line_waits_since_it_was_created():
    found = in_line()
    assert (found.name, found.team, found.since, found.demand.gpus) == ("team-a/a", "team-a", 7, gpus(4))
    assert (found.gang, found.domain) == ("", None)


def test_a_gang_asks_for_its_domain():
    assert (in_line(gang=GANG).gang, in_line(gang=GANG).domain) == ("g", RACK)


def test_a_pod_that_a_limit_or_a_gate_keeps_in_line_is_none():
    assert in_line(cluster=world(policy(team(limit_=3, guaranteed=1)))) is None
    assert in_line(gates=("other/gate",)) is None
    assert in_line(is_terminating=True) is None


def test_a_pod_of_a_scheduler_waits_since_its_first_report():
    assert with_scheduler().since == 9
    assert with_scheduler(gang=GangId("g")).gang == "g"


def test_a_pod_that_its_scheduler_did_not_find_room_for_is_one():
    assert with_scheduler(report=None) is None
    assert with_scheduler(report=SchedulerReport(9, is_for_taints=True)) is None
    assert with_scheduler(is_gated=True) is None


def test_a_pod_of_an_exempt_namespace_is_none():
    exempt = policy(exempt_namespaces=("team-a",))
    assert with_scheduler(world(exempt)) is None
