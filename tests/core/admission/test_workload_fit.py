"""Whether all pods of a workload can ever run: against limits without usage, and empty nodes."""

import pytest

from tests.core.support import claims
from tests.core.support.departments import department, tree_policy
from tests.core.support.make import ALICE, JOB, demand, gpus, limit, node, pod, policy, pool, resident, team, world
from webhook.core.admission.workload_fit import Part, fit_problems
from webhook.core.model.amounts import GpuModel, Namespace
from webhook.core.model.constraints import Constraints, Effect, Taint, Toleration
from webhook.core.model.pod import Handling, NamespaceFacts
from webhook.core.model.policy import Defaults, Share, UnknownTeam
from webhook.core.model.reasons import Code

A100 = GpuModel("A100")


def part(count=1, *, each=1, role="Worker", **more):
    return Part(role, pod(each, owner=JOB, **more), count)


def problems(parts, place):
    return [(reason.code, reason.text) for reason in fit_problems(parts, ALICE, place)]


def test_a_workload_that_fits_has_no_warning():
    assert problems([part(4), part(1, role="Master")], world(policy(team(limit_=5)))) == []


def test_current_usage_does_not_count():
    held = [resident(5) for _ in range(8)]
    assert problems([part(4, each=10)], world(policy(team(limit_=40)), residents=held)) == []


def test_all_parts_count_against_the_teams_limit_together():
    place = world(policy(team(guaranteed=2, limit_=10)))
    assert problems([part(1, each=2, role="Master"), part(5, each=2)], place) == [
        (Code.TEAM_LIMIT_EXCEEDED, "needs 12 GPUs, team team-a's limit is 10")
    ]


def test_a_part_without_a_number_makes_the_sum_a_least_one():
    place = world(policy(team(guaranteed=2, limit_=4)))
    assert problems([part(None, each=1), part(2, each=2)], place) == [
        (Code.TEAM_LIMIT_EXCEEDED, "needs at least 5 GPUs, team team-a's limit is 4")
    ]


def test_fractions_are_shown_as_people_write_them():
    place = world(policy(team(guaranteed=0, limit_=2.5)))
    assert problems([part(3)], place)[0][1] == "needs 3 GPUs, team team-a's limit is 2.5"


def test_one_pod_may_be_too_large_by_itself():
    place = world(policy(team(per_pod=limit(4))))
    assert problems([part(2, each=8)], place) == [
        (Code.POD_LIMIT_EXCEEDED, "one Worker pod needs 8 GPUs, team team-a's limit per pod is 4")
    ]


@pytest.mark.parametrize(
    ("annotations", "want"),
    [({"owner": "ada"}, [Code.USER_LIMIT_EXCEEDED]), ({}, [])],
    ids=["with a user", "without a user"],
)
def test_the_limit_per_user_holds_where_a_user_will_be_named(annotations, want):
    place = world(policy(team(per_user=limit(3))))
    place.set_namespace(NamespaceFacts(Namespace("team-a"), annotations=annotations))
    assert [code for code, _ in problems([part(4)], place)] == want


def test_a_bare_pod_belongs_to_its_creator():
    place = world(policy(team(per_user=limit(3))))
    bare = Part("", pod(4), 1)
    assert problems([bare], place) == [(Code.USER_LIMIT_EXCEEDED, "needs 4 GPUs, team team-a's limit per user is 3")]


def test_pods_that_never_borrow_must_fit_the_guaranteed_share():
    place = world(policy(team(guaranteed=3, limit_=40)))
    assert problems([part(4, tier_label="guaranteed"), part(9)], place) == [
        (
            Code.GUARANTEED_SHARE_USED,
            "asks for 4 GPUs that are never borrowed, team team-a's guaranteed share is 3",
        )
    ]


def test_no_node_may_hold_one_pod():
    assert problems([part(1, each=11)], world()) == [
        (
            Code.NEVER_FITS,
            "no node could hold one Worker pod: it asks for nvidia.com/gpu 11, the largest of 4 nodes has "
            "10; ask for less",
        )
    ]


def test_nodes_may_hold_each_pod_but_not_all_of_them():
    place = world(policy(team(limit_=None)))
    assert problems([part(8, each=6)], place) == [
        (Code.NEVER_FITS, "the nodes hold 4 of 8 Worker pods (nvidia.com/gpu 6) at once, even when empty")
    ]
    assert problems([part(8, each=5)], place) == []


def test_cpu_and_memory_hold_pods_apart_too():
    place = world(policy(team(limit_=None)), [node("n0", cpu=12_000)])
    assert problems([part(3)], place) == [
        (Code.NEVER_FITS, "the nodes hold 2 of 3 Worker pods (nvidia.com/gpu 1) at once, even when empty")
    ]


def test_only_nodes_that_the_pods_may_use_count():
    tainted = node("n0", taints=(Taint("k", Effect.NO_SCHEDULE),))
    place = world(policy(team(limit_=None)), [tainted, node("n1")])
    assert problems([part(2, each=6)], place)[0][0] is Code.NEVER_FITS
    tolerant = Constraints(tolerations=(Toleration("k", exists=True),))
    assert problems([part(2, each=6, constraints=tolerant)], place) == []


def test_only_nodes_of_the_pool_count():
    pools = (pool("big", node_selector=(("size", "big"),)),)
    place = world(policy(pools=pools), [node("n0", gpus=2, labels={"size": "big"}), node("n1")])
    assert problems([part(1, each=4)], place)[0][0] is Code.NEVER_FITS


def test_a_pool_that_does_not_exist_has_the_same_message_as_for_a_pod():
    assert [code for code, _ in problems([part(1, pool="gone")], world())] == [Code.UNKNOWN_POOL]


def test_a_world_without_nodes_gives_no_warning_about_nodes():
    assert problems([part(4, each=100)], world(policy(team(limit_=None)), [])) == []


def test_the_limit_of_a_model_holds_where_only_that_model_will_do():
    share = {A100: Share(0, gpus(4))}
    nodes = [node("n0", model=A100, model_label="m", labels={"m": "A100"}), node("n1")]
    place = world(policy(team(models=share)), nodes)
    only = Constraints(node_selector=(("m", "A100"),))
    assert problems([part(3, each=2, constraints=only)], place) == [
        (Code.MODEL_LIMIT_EXCEEDED, "needs 6 GPUs of A100, team team-a's limit is 4")
    ]
    assert problems([part(3, each=2)], place) == []


def test_all_parts_count_against_the_limits_of_departments_together_whatever_is_used():
    left = department("left", "top", limit_=9, models={A100: Share(0, gpus(4))})
    nodes = [node("n0", model=A100, model_label="m", labels={"m": "A100"}), node("n1")]
    held = [resident(5, namespace="team-b", node="n1")]
    place = world(tree_policy(left=left, top=department("top", limit_=11)), nodes, held)
    assert problems([part(1, each=4, role="Master"), part(3, each=2)], place) == [
        (Code.DEPARTMENT_LIMIT_EXCEEDED, "needs 10 GPUs, department left's limit is 9")
    ]
    only = Constraints(node_selector=(("m", "A100"),))
    assert problems([part(3, each=2, constraints=only)], place) == [
        (Code.DEPARTMENT_LIMIT_EXCEEDED, "needs 6 GPUs of A100, department left's limit is 4")
    ]
    assert problems([part(4, each=2)], place) == []


def test_a_daemon_set_has_a_pod_on_every_node_it_may_use():
    place = world(policy(team(guaranteed=0, limit_=3)))
    daemon = Part("", pod(1, handling=Handling.DAEMON_SET), None)
    assert problems([daemon], place) == [(Code.TEAM_LIMIT_EXCEEDED, "needs 4 GPUs, team team-a's limit is 3")]


@pytest.mark.parametrize("handling", [Handling.FOREIGN_SCHEDULER, Handling.NODE_NAME])
def test_externally_placed_pods_are_checked_against_limits_and_not_nodes(handling):
    place = world(policy(team(guaranteed=0, limit_=3)))
    assert [code for code, _ in problems([part(1, each=11, handling=handling)], place)] == [Code.TEAM_LIMIT_EXCEEDED]


def test_a_namespace_without_a_team_has_a_warning():
    parts = [part(1, namespace="elsewhere")]
    assert problems(parts, world()) == [(Code.UNKNOWN_TEAM, "namespace elsewhere belongs to no team: no pod may start")]
    open_to_all = policy(defaults=Defaults(unknown_team=UnknownTeam.PREEMPTIBLE))
    assert problems(parts, world(open_to_all)) == []


def test_exempt_namespaces_and_pods_without_gpus_are_not_judged():
    place = world(policy(team(guaranteed=0, limit_=0), exempt_namespaces=("ops",)))
    assert problems([part(9, namespace="ops")], place) == []
    assert problems([Part("", pod(demand=demand(0)), 9)], place) == []
    assert problems([part(0, each=99)], place) == []


def test_a_team_without_a_limit_may_have_all():
    assert problems([part(40)], world(policy(team(limit_=None)))) == []


def test_equal_reasons_are_shown_once():
    assert len(problems([part(1, each=11), part(1, each=11)], world(policy(team(limit_=None))))) == 1


def sharing(count, *refs, each=0, role="Worker"):
    demand_ = demand(each) if each else claims.bare()
    return Part(role, pod(demand=demand_, owner=JOB, claims=refs), count)


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        ([sharing(2, claims.SHARING)], []),
        ([sharing(2, claims.SHARING), sharing(3, claims.SHARING, role="Other")], []),
        ([sharing(2, claims.MAKING)], ["needs 4 GPUs, team team-a's limit is 2"]),
        ([sharing(2, claims.SHARING, each=1)], ["needs 4 GPUs, team team-a's limit is 2"]),
        ([sharing(None, claims.SHARING, each=1)], ["needs at least 3 GPUs, team team-a's limit is 2"]),
        ([sharing(2, claims.SHARING, claims.MAKING)], ["needs 6 GPUs, team team-a's limit is 2"]),
    ],
    ids=[
        "pods that share a claim",
        "pods of two roles that share a claim",
        "pods with claims of their own",
        "GPUs of their own beside it",
        "an open number of them",
        "claims of both kinds",
    ],
)
def test_a_claim_that_pods_share_counts_once(parts, want):
    place = claims.world((team(limit_=2),))
    place.set_claim(claims.SHARED, claims.spec(2))
    place.set_claim(claims.TEMPLATE, claims.spec(2))
    assert [text for code, text in problems(parts, place) if code is Code.TEAM_LIMIT_EXCEEDED] == want


def test_the_nodes_hold_a_shared_claim_once():
    place = claims.with_devices(2, "n1")
    place.set_policy(policy(team(), resources=place.policy.resources))
    place.set_claim(claims.SHARED, claims.spec(2))
    place.set_claim(claims.TEMPLATE, claims.spec(2))
    assert problems([sharing(3, claims.SHARING)], place) == []
    [(code, text)] = problems([sharing(3, claims.MAKING)], place)
    assert (code, "hold 1 of 3 Worker pods" in text) == (Code.NEVER_FITS, True)
