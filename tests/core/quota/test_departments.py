"""Departments: sums over teams that are always exact, and limits that hold at every level."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import ALICE, gpus, node, pod, resident, world
from tests.core.support.outcomes import admitted, codes
from tests.examples import examples
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import ANY_MODEL, GpuModel, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Share
from webhook.core.model.reasons import Code
from webhook.core.quota.charges import InFlightCharge
from webhook.core.quota.limits import Account, Request, violations
from webhook.core.quota.shares import DepartmentUsage, Holder

A100, H100 = GpuModel("A100"), GpuModel("H100")
TEAMS = ("team-a", "team-b", "team-c", "team-d")
BELOW = {"left": TEAMS[:2], "top": TEAMS[:3]}


def change(usage, team, amount, model=None, *, is_guaranteed=False):
    charge = Charge(TeamName(team), Tier.GUARANTEED, gpus(amount), model)
    usage.change(charge, gpus(amount), is_reserved=False, is_waiting=False, is_guaranteed=is_guaranteed)


def test_the_largest_teams_of_a_model_include_what_may_still_end_on_it():
    usage = DepartmentUsage(department("d"))
    for team, amount, model in (("a", 3, A100), ("b", 2, A100), ("b", 2, ANY_MODEL), ("c", 9, H100)):
        change(usage, team, amount, model)
    assert usage.largest(2, model=A100) == [Holder("team b", gpus(4)), Holder("team a", gpus(3))]
    assert (usage.model(A100), usage.model(ANY_MODEL), usage.total) == (gpus(7), gpus(2), gpus(16))
    assert usage.largest(1) == [Holder("team c", gpus(9))]


def test_what_teams_borrow_is_what_is_not_guaranteed():
    usage = DepartmentUsage(department("d"))
    change(usage, "a", 3, is_guaranteed=True)
    change(usage, "b", 2)
    change(usage, "a", -1, is_guaranteed=True)
    assert (usage.total, usage.preemptible) == (gpus(4), gpus(2))


def test_a_refusal_names_the_level_its_teams_and_what_passes_at_all_levels():
    tree = tree_policy(left=department("left", "top", limit_=9), top=department("top", limit_=14))
    held = [resident(6, namespace="team-a"), resident(1, namespace="team-b"), resident(4, namespace="team-c")]
    refused = admit(pod(5, namespace="team-b"), ALICE, world(tree, residents=held))
    assert codes(refused) == [Code.DEPARTMENT_LIMIT_EXCEEDED, Code.DEPARTMENT_LIMIT_EXCEEDED]
    assert [reason.text for reason in refused.reasons] == [
        "department left: requested 5, limit 9, used 7, reserved 0; largest holders: team team-a 6, team team-b 1;"
        " a request of at most 2 would pass now",
        "department top: requested 5, limit 14, used 11, reserved 0; largest holders: team team-a 6, team team-c 4,"
        " team team-b 1; a request of at most 2 would pass now",
    ]


def test_a_full_department_refuses_a_team_that_holds_nothing():
    tree = tree_policy(left=department("left", "top", limit_=2), guaranteed=0)
    refused = admit(pod(1, namespace="team-b"), ALICE, world(tree, residents=[resident(2, namespace="team-a")]))
    (reason,) = refused.reasons
    assert reason.text.endswith("no request would pass now: wait until a pod of one of these teams ends")
    assert admitted(admit(pod(1, namespace="team-c"), ALICE, world(tree)))


def test_the_limit_of_a_department_for_a_model_counts_all_of_its_teams():
    left = department("left", "top", models={A100: Share(0, gpus(4))})
    nodes = [node("a", model=A100), node("h", model=H100)]
    held = [resident(3, namespace="team-a", node="a")]
    place = world(tree_policy(left=left), nodes=nodes, residents=held)
    assert place.charge_of(held[0].uid).model == A100
    assert admit(pod(2, namespace="team-b"), ALICE, place).node_choice.nodes == ("h",)
    full = world(tree_policy(left=left), nodes=nodes[:1], residents=held)
    (reason,) = admit(pod(2, namespace="team-b"), ALICE, full).reasons
    assert reason.code is Code.DEPARTMENT_LIMIT_EXCEEDED
    assert reason.text == (
        "department left on A100: requested 2, limit 4, used 3; largest holders: team team-a 3;"
        " a request of at most 1 would pass now"
    )


def test_another_policy_moves_the_sums_with_the_teams():
    place = world(tree_policy(), residents=[resident(3, namespace="team-a"), resident(2, namespace="team-c")])
    assert sums(place) == {"left": gpus(3), "top": gpus(5)}
    place.set_policy(tree_policy(left=department("left"), top=department("top", "left")))
    assert sums(place) == {"left": gpus(3), "top": gpus(5)}
    place.set_policy(world().policy)
    assert sums(place) == {}


def test_a_pod_that_is_verified_is_refused_by_the_same_limit():
    tree = tree_policy(left=department("left", "top", limit_=2))
    refused = verify(pod(3, namespace="team-a", uid=Uid("u")), ALICE, world(tree))
    assert codes(refused) == [Code.DEPARTMENT_LIMIT_EXCEEDED]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("charge", "see", "end", "forget", "policy")),
        st.sampled_from(TEAMS),
        st.integers(1, 4),
        st.integers(0, 9),
    ),
    max_size=40,
)


@examples(60)
@given(STEPS, st.integers(0, 9), st.integers(0, 14))
def test_no_level_passes_its_limit_and_sums_equal_the_recount_whatever_the_order(steps, left, top):
    tree = tree_policy(left=department("left", "top", limit_=left), top=department("top", limit_=top), team_limit=6)
    place, held = world(tree, nodes=[]), {}
    limits = {"left": left, "top": top}
    for number, (what, team, amount, which) in enumerate(steps):
        uid = sorted(held)[which % len(held)] if held else ""
        if what == "charge":
            account = Account(tree.team(TeamName(team)), place.usage(TeamName(team)), None, pod(amount))
            if not violations(Request(gpus(amount)), account):
                new = resident(amount, uid=f"u{number:02}", namespace=team)
                held[new.uid] = new
                place.assume(InFlightCharge(new, Charge(TeamName(team), Tier.PREEMPTIBLE, gpus(amount)), None))
        elif uid and what == "see":
            place.set_pod(held[uid])
        elif uid and what == "end":
            place.set_pod(held[uid])
            place.remove_pod(Uid(uid))
            del held[uid]
        elif uid and what == "forget":
            place.drop_reservation(Uid(uid))
            if place.pod(Uid(uid)) is None:
                del held[uid]
        else:
            place.set_policy(tree)
        count = Counter()
        for each in held.values():
            count[each.namespace] += each.demand.gpus
        want = {name: sum(count[team] for team in teams) for name, teams in BELOW.items()}
        assert sums(place) == want
        assert all(want[name] <= gpus(limits[name]) for name in want)
        assert all(place.usage(TeamName(team)).total == count[team] <= gpus(6) for team in TEAMS)


def sums(place):
    return {each.department.name: each.total for each in place.departments()}
