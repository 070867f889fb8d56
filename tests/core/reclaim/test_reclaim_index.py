"""The index: which pods may be evicted, which wait, which are terminating."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import policy
from tests.core.support.reclaim_pods import NOW, asker, borrower, evict, indexed, reclaim_pod
from webhook.core.model.amounts import GangId, Namespace, TeamName, Uid, WorkloadName
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.pod import Handling, Obstacle, Replica, Unbound
from webhook.core.model.policy import LabelSelector, ReclaimRules
from webhook.core.reclaim.evictions import Attempts
from webhook.core.reclaim.reclaim_index import BUDGETS, STUCK_SECONDS, ReclaimIndex
from webhook.core.reclaim.reclaim_pods import TWO_BUDGETS, Disruption, ReclaimPod, SchedulerReport
from webhook.core.world.minimums import Minimums

APP = LabelSelector((Requirement("app", Operator.IN, ("kept",)),))
GANG = GangId("team-a/g")


NO_RULES = ReclaimRules()


def index_of(*reclaim_pods, rules=NO_RULES):
    reclaim_index = ReclaimIndex(rules)
    for each in reclaim_pods:
        reclaim_index.set(each)
    return reclaim_index


def uids_leaving(reclaim_index):
    return sorted(
        each.uid for node, there in reclaim_index.leaving(now=NOW).items() for each in there if each.pod.node == node
    )


def victims(reclaim_index):
    return sorted(victim.uid for victim in reclaim_index.victim_index)


@pytest.mark.parametrize(
    "never",
    [
        reclaim_pod("p", on="n0", team="team-a", tier="guaranteed"),
        reclaim_pod("p", on="n0", team="team-a", tier=None),
        borrower("p", is_terminating=True),
        borrower("p", on=None, is_terminating=True),
    ],
    ids=["it is guaranteed", "it bypassed the webhook", "it is leaving", "it is on no node and deleted"],
)
def test_some_pods_are_never_victims(never):
    assert victims(index_of(never)) == []


def test_a_borrower_without_a_node_is_a_victim_of_no_node():
    index = index_of(borrower("p", on=None), borrower("q"))
    assert sorted(victims(index)) == ["p", "q"]
    assert index.victim_index.on("") is None
    index.remove("p")
    assert victims(index) == ["q"]


def stages(*stages_, **more):
    """A pod as it changes: its node, and what its scheduler reports of it."""
    more = {"team": "team-b", "tier": "guaranteed", "created": 5} | more
    return [reclaim_pod("p", on=on, report=report and SchedulerReport(report), **more) for on, report in stages_]


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        (stages(("n0", None), ("n0", None)), Attempts()),
        (stages((None, None), (None, None)), Attempts()),
        (stages((None, None), ("n0", None), scheduler="own", priority=7), Attempts({"own": 1}, {("own", 7): 5})),
        (stages((None, None), (None, 8), (None, 8)), Attempts({"": 1}, {("", 0): 5})),
        (stages((None, 8), ("n0", None), ("n0", None)), Attempts({"": 1}, {("", 0): 8})),
    ],
    ids=["names its node", "waits", "is placed", "finds no room: it came before that", "is placed after that"],
)
def test_the_index_counts_the_pods_that_schedulers_come_to(pods, want):
    assert index_of(*pods).attempts == want


def test_policy_protects_namespaces_and_labels():
    rules = ReclaimRules(protected_namespaces=("team-*",))
    assert victims(index_of(borrower("p"), rules=rules)) == []
    chosen = ReclaimRules(protected_selectors=(APP,))
    assert victims(index_of(borrower("p", labels={"app": "kept"}), borrower("q"), rules=chosen)) == ["q"]


def test_a_new_policy_reindexes_all_pods():
    reclaim_index = index_of(borrower("p"))
    reclaim_index.set_rules(ReclaimRules(protected_namespaces=("team-a",)))
    assert victims(reclaim_index) == []
    reclaim_index.set_rules(ReclaimRules())
    assert victims(reclaim_index) == ["p"]


def test_one_budget_limits_and_two_forbid():
    reclaim_index = index_of(borrower("p", labels={"app": "kept"}))
    assert not reclaim_index.may_be_refused(next(iter(reclaim_index.victim_index)))
    reclaim_index.set_disruption(Disruption(Namespace("team-a"), "one", APP, allowed=2))
    assert reclaim_index.may_be_refused(next(iter(reclaim_index.victim_index)))
    assert victims(reclaim_index) == ["p"]
    assert reclaim_index.allowances() == {"pdb team-a/one": 2}
    reclaim_index.set_disruption(Disruption(Namespace("team-a"), "two", APP, allowed=2))
    assert TWO_BUDGETS in next(iter(reclaim_index.victim_index)).guards
    assert TWO_BUDGETS not in reclaim_index.allowances()
    reclaim_index.remove_disruption(Namespace("team-a"), "one")
    assert next(iter(reclaim_index.victim_index)).guards == ("pdb team-a/two",)


def test_a_budget_that_spares_healthy_pods_only_guards_no_others():
    ready = borrower("ready", labels={"app": "kept"})
    ready = replace(ready, pod=ready.pod._replace(is_ready=True))
    reclaim_index = index_of(ready, borrower("broken", labels={"app": "kept"}))

    def guards():
        return {found.uid: found.guards for found in reclaim_index.victim_index}

    budget = Disruption(Namespace("team-a"), "one", APP, allowed=0)
    reclaim_index.set_disruption(budget)
    assert guards() == {"ready": (budget.guard,), "broken": (budget.guard,)}
    reclaim_index.set_disruption(replace(budget, spares_healthy_only=True))
    assert guards() == {"ready": (budget.guard,), "broken": ()}
    evict(reclaim_index, Uid("broken"))
    assert reclaim_index.allowances() == {budget.guard: 0}, "the API server counts no eviction of it"
    reclaim_index.set(borrower("pulls", is_starting=True, labels={"app": "kept"}))
    reclaim_index.set_disruption(budget)
    assert guards() == {"ready": (budget.guard,), "pulls": ()}, "no budget counts for a pending pod"
    reclaim_index.set_disruption(replace(budget, name="two", spares_healthy_only=True))
    assert TWO_BUDGETS in guards()["ready"]


def test_only_some_of_thousands_of_budgets_are_evaluated():
    none = LabelSelector((Requirement("app", Operator.IN, ("none",)),))
    reclaim_index = index_of(borrower("p", labels={"app": "kept"}))
    for number in range(BUDGETS):
        reclaim_index.set_disruption(Disruption(Namespace("team-a"), f"b{number:03}", none, allowed=0))
    reclaim_index.set_disruption(Disruption(Namespace("team-a"), "c", APP, allowed=0))
    assert next(iter(reclaim_index.victim_index)).guards == ()
    assert len(reclaim_index.allowances()) == BUDGETS
    assert reclaim_index.may_be_refused(next(iter(reclaim_index.victim_index)))
    reclaim_index.remove_disruption(Namespace("team-a"), "b000")
    assert next(iter(reclaim_index.victim_index)).guards == ("pdb team-a/c",)


def test_a_budget_of_another_namespace_protects_no_pod():
    reclaim_index = index_of(borrower("p", labels={"app": "kept"}))
    reclaim_index.set_disruption(Disruption(Namespace("team-c"), "one", APP, allowed=0))
    assert next(iter(reclaim_index.victim_index)).guards == ()


def test_a_guaranteed_member_protects_no_borrowers_of_its_gang():
    reclaim_index = index_of(borrower("p", gang=GANG), borrower("q", gang=GANG, on="n1"))
    reclaim_index.set(reclaim_pod("r", on="n2", team="team-a", tier="guaranteed", gang=GANG))
    assert victims(reclaim_index) == ["p", "q"]
    assert sorted(each.pod.uid for each in reclaim_index.members(GANG)) == ["p", "q", "r"]
    reclaim_index.set(borrower("q", on="n1"))
    reclaim_index.remove(Uid("r"))
    assert [each.pod.uid for each in reclaim_index.members(GANG)] == ["p"]


def test_pods_of_a_pod_group_go_together_once_it_says_so():
    minimums = Minimums()
    reclaim_index = ReclaimIndex(NO_RULES, minimums)
    group = WorkloadName("team-a/PodGroup/g")
    for uid in ("p", "q"):
        member = borrower(uid, gang=GANG, is_grouped=True)
        minimums.set_pod(Uid(uid), Replica(group), is_ready=True)
        reclaim_index.set(replace(member, pod=member.pod._replace(replica=Replica(group), is_ready=uid == "p")))

    def found():
        return {(victim.gang, victim.replica_of) for victim in reclaim_index.victim_index}

    assert found() == {(None, None)}, "no such object is known"
    minimums.set_scaler("g", group, 1)
    assert found() == {(GANG, group)}, "also a member that is not ready"
    minimums.remove_scaler("g")
    assert found() == {(None, None)}


def test_a_borrower_with_a_grace_period_of_years_is_a_victim():
    year = 86_400 * 365
    guard = Disruption(Namespace("team-a"), "one", APP, allowed=0)
    dying = borrower("p", is_terminating=True, leaves_at=NOW + year, leave_seconds=year, labels={"app": "kept"})
    reclaim_index = index_of(dying)
    reclaim_index.set_disruption(guard)
    assert (victims(reclaim_index), uids_leaving(reclaim_index), reclaim_index.empty_at(now=NOW)) == (["p"], [], {})
    found = next(iter(reclaim_index.victim_index))
    assert (found.guards, found.grace_seconds) == ((), NO_RULES.longest_grace_seconds), "no budget guards it any more"
    evict(reclaim_index, Uid("p"))
    assert uids_leaving(reclaim_index) == ["p"]
    reclaim_index.set(borrower("p", is_terminating=True, leaves_at=NOW + 600, leave_seconds=600))
    assert (victims(reclaim_index), uids_leaving(reclaim_index)) == ([], ["p"])


def test_an_evicted_victim_counts_as_leaving_until_the_watch_shows_it():
    reclaim_index = index_of(borrower("p", labels={"app": "kept"}))
    reclaim_index.set_disruption(Disruption(Namespace("team-a"), "one", APP, allowed=1))
    evict(reclaim_index, Uid("p"))
    assert victims(reclaim_index) == []
    assert reclaim_index.is_going(Uid("p"))
    assert uids_leaving(reclaim_index) == ["p"]
    assert reclaim_index.allowances() == {"pdb team-a/one": 0}
    reclaim_index.set(borrower("p", labels={"app": "kept"}, saved_at=5))
    assert reclaim_index.is_going(Uid("p"))
    reclaim_index.expire(before=NOW)
    assert victims(reclaim_index) == ["p"]


def test_a_static_pod_is_no_victim():
    """Its deletion through the API does nothing: kubelet creates the object again."""
    static = borrower("p")
    static = replace(static, pod=static.pod._replace(handling=Handling.MIRROR))
    assert victims(index_of(static, borrower("q"))) == ["q"]


def test_a_pod_is_stuck_once_its_grace_period_is_long_over():
    reclaim_index = index_of(borrower("p", is_terminating=True, leaves_at=NOW), borrower("q"))
    assert reclaim_index.stuck(now=NOW + STUCK_SECONDS) == []
    assert [each.uid for each in reclaim_index.stuck(now=NOW + STUCK_SECONDS + 1)] == ["p"]


def test_the_room_of_a_stuck_pod_does_not_count():
    reclaim_index = index_of(borrower("p", is_terminating=True, leaves_at=NOW))
    assert reclaim_index.leaving(now=NOW + STUCK_SECONDS)
    assert reclaim_index.leaving(now=NOW + STUCK_SECONDS + 1) == {}


def test_a_node_is_empty_when_its_last_leaving_pod_must_be_gone():
    leaving = [borrower(f"p{n}", is_terminating=True, leaves_at=NOW + n) for n in (5, 9)]
    stuck = borrower("stuck", is_terminating=True, leaves_at=NOW - STUCK_SECONDS - 1)
    reclaim_index = index_of(*leaving, stuck, borrower("stays"))
    assert reclaim_index.empty_at(now=NOW) == {"n0": NOW + 9}


def test_waiting_pods_are_guaranteed_and_held_back_by_nothing_else():
    gated = replace(asker("gated"), is_gated=True)
    reclaim_index = index_of(asker("b"), gated, borrower("p", on=None), asker("gone", is_terminating=True))
    assert [each.pod.uid for each in reclaim_index.waiting()] == ["b"]


reclaim_pods = st.builds(
    lambda uid, on, tier, gang, ends, app: reclaim_pod(
        f"u{uid}", on=on, team="team-a", tier=tier, gang=gang, is_terminating=ends, labels={"app": app}
    ),
    st.integers(0, 5),
    st.sampled_from(["n0", "n1", None]),
    st.sampled_from(["guaranteed", "preemptible", "preemptible", None]),
    st.sampled_from([None, GANG]),
    st.booleans(),
    st.sampled_from(["kept", "free"]),
)
budgets = st.builds(lambda name: Disruption(Namespace("team-a"), name, APP, allowed=1), st.sampled_from(["one", "two"]))
steps = st.lists(
    st.one_of(
        reclaim_pods,
        budgets,
        st.tuples(st.sampled_from(["remove", "evict"]), st.integers(0, 5).map(lambda n: Uid(f"u{n}"))),
        st.just("expire"),
        st.sampled_from([ReclaimRules(), ReclaimRules(protected_selectors=(APP,))]),
    ),
    max_size=25,
)


class Truth:
    """The content of the index, in any order of events."""

    def __init__(self):
        self.reclaim_pods, self.budgets, self.rules, self.going = {}, {}, NO_RULES, set()

    def take(self, step):
        match step:
            case ("remove", uid):
                self.reclaim_pods.pop(uid, None)
                self.going.discard(uid)
            case ("evict", uid) if uid in self.reclaim_pods and not self.reclaim_pods[uid].pod.is_terminating:
                self.going.add(uid)
            case "expire":
                self.going.clear()
            case Disruption():
                self.budgets[step.name] = step
            case ReclaimRules():
                self.rules = step
            case ReclaimPod():
                self.reclaim_pods[step.pod.uid] = step
                self.going -= {step.pod.uid} if step.pod.is_terminating else set()

    def reclaim_index(self):
        made = ReclaimIndex(self.rules)
        for step in (*self.budgets.values(), *self.reclaim_pods.values(), *(("evict", uid) for uid in self.going)):
            hand(step, made)
        return made


def hand(step, reclaim_index):
    match step:
        case ("remove", uid):
            reclaim_index.remove(uid)
        case ("evict", uid):
            evict(reclaim_index, uid)
        case "expire":
            reclaim_index.expire(before=NOW)
        case Disruption():
            reclaim_index.set_disruption(step)
        case ReclaimRules():
            reclaim_index.set_rules(step)
        case ReclaimPod():
            reclaim_index.set(step)


@given(steps)
def test_the_index_equals_a_new_one_after_any_events(taken):
    """Updated by events, it equals one that is built from the final state."""
    reclaim_index, truth = ReclaimIndex(NO_RULES), Truth()
    for step in taken:
        hand(step, reclaim_index)
        truth.take(step)
    want = truth.reclaim_index()
    assert {victim.uid: victim for victim in reclaim_index.victim_index} == {
        victim.uid: victim for victim in want.victim_index
    }
    assert {each.pod.uid for each in reclaim_index.waiting()} == {each.pod.uid for each in want.waiting()}
    assert uids_leaving(reclaim_index) == uids_leaving(want)


def test_the_index_has_the_policy_of_its_world():
    rules = ReclaimRules(minimum_runtime_seconds=60)
    reclaim_index, _ = indexed(borrower("p", started_at=NOW), policy=policy(reclaim=rules))
    assert next(iter(reclaim_index.victim_index)).until == NOW + 60


def test_a_pod_without_labels_is_a_victim_only_while_it_is_said_to_borrow():
    bare = replace(borrower("a", on="n0"), pod=borrower("a", on="n0").pod._replace(team_label=None, tier_label=None))
    there = index_of(bare)
    there.set_borrowing({Uid("a"): TeamName("team-a")})
    assert victims(there) == ["a"]
    there.set_rules(ReclaimRules(minimum_runtime_seconds=60))
    assert victims(there) == ["a"], "sorted again"
    there.set_borrowing({})
    assert (victims(there), there.get(Uid("a"))) == ([], bare)


def test_no_budget_covers_a_borrower_that_does_not_run_yet():
    """The API server carries out its eviction whatever its budgets say."""
    there = index_of(borrower("a", labels={"app": "kept"}, is_starting=True), borrower("b", labels={"app": "kept"}))
    there.set_disruption(Disruption(Namespace("team-a"), "one", APP, allowed=0))
    assert {each.uid: bool(each.guards) for each in there.victim_index} == {"a": False, "b": True}


@pytest.mark.parametrize(
    ("obstacle", "want"), [(Obstacle.OTHER, ["p"]), (Obstacle.PEERS, []), (Obstacle.GATE, []), (Obstacle.ROOM, [])]
)
def test_only_pods_that_nothing_else_can_help_are_stalled(obstacle, want):
    found = borrower("p", on=None)
    index = index_of(replace(found, pod=found.pod._replace(unbound=Unbound(obstacle, "why"))))
    assert [each.uid for each in index.stalled()] == want
