"""Terms and places: what the mutating step decides."""

import pytest

from tests.core.support.make import (
    ALICE,
    GPU,
    JOB,
    JOB_CONTROLLER,
    demand,
    flight,
    gpus,
    mutated,
    node,
    pod,
    policy,
    pool,
    requirement,
    resident,
    team,
    world,
)
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.decision import Admit, Deny, NotApplicable, Retry
from webhook.core.model.names import GpuModel, Namespace, TeamName
from webhook.core.model.pod import Handling, NamespaceFacts, Owner, PriorityTriple, Requester
from webhook.core.model.policy import Defaults, LabelSelector, Mode, PlacementRules, Share, UnknownTeam
from webhook.core.model.reason import Code, refusal_text
from webhook.core.model.selector import Constraints, Effect, NodeTerm, Taint, Toleration
from webhook.core.model.tier import Tier
from webhook.core.world.world import World

A100, T4 = GpuModel("A100"), GpuModel("T4")


def codes(decision) -> list[Code]:
    assert isinstance(decision, Deny), decision
    return [reason.code for reason in decision.reasons]


def admitted(decision) -> Admit:
    assert isinstance(decision, Admit), decision
    return decision


def test_first_inside_the_share_then_borrowing_then_refused_with_the_numbers():
    place = world(policy(team(guaranteed=2, limit_=3)))
    tiers = []
    for i in range(3):
        asked = pod(1, name=f"p{i}")
        decision = admitted(admit(asked, ALICE, place))
        made = mutated(asked, decision, uid=f"u{i}")
        verified = admitted(verify(made, ALICE, place))
        made_flight = flight(made, verified.charge, verified.steering.nodes[0])
        (place.assume if i == 2 else place.add_pod)(made_flight)
        tiers.append(decision.charge.tier)
    assert tiers == [Tier.GUARANTEED, Tier.GUARANTEED, Tier.PREEMPTIBLE]
    refused = admit(pod(2), ALICE, place)
    assert codes(refused) == [Code.TEAM_LIMIT_EXCEEDED]
    assert refusal_text(refused.reasons) == (
        "exceeded quota: team team-a: requested 2, limit 3, used 2, reserved 1; largest holders: team-a/Pod/p0 1 "
        "(alice@example.com), team-a/Pod/p1 1 (alice@example.com), team-a/Pod/p2 1 (alice@example.com); no request "
        "would pass now: wait until a holder ends, or delete one (TeamLimitExceeded)"
    )


def test_every_limit_that_is_broken_is_reported():
    crowded = team(limit_=4, per_pod=gpus(2), per_user=gpus(3))
    place = world(policy(crowded), residents=[resident(2, user=ALICE.username)])
    refused = admit(pod(3), ALICE, place)
    assert codes(refused) == [Code.POD_LIMIT_EXCEEDED, Code.TEAM_LIMIT_EXCEEDED, Code.USER_LIMIT_EXCEEDED]
    assert [reason.text.rpartition("; ")[2] for reason in refused.reasons] == [
        "split the work over more pods, or ask for at most 2 per pod",
        "a request of at most 1 would pass now",
        "a request of at most 1 would pass now",
    ]


def test_a_request_that_exactly_fills_the_limit_passes():
    assert admitted(admit(pod(4), ALICE, world(policy(team(limit_=4)))))


ROBOTS = "system:serviceaccounts:team-a"


def robot(name, namespace="team-a"):
    return Requester(f"system:serviceaccount:{namespace}:{name}")


@pytest.mark.parametrize(
    ("requester", "owner", "annotations", "want"),
    [
        pytest.param(ALICE, None, {}, ALICE.username, id="a bare pod belongs to its requester"),
        pytest.param(ALICE, JOB, {}, ALICE.username, id="a person cannot hide behind a forged owner"),
        pytest.param(JOB_CONTROLLER, JOB, {"owner": "bob"}, "bob", id="a controller's pod to the profile's owner"),
        pytest.param(JOB_CONTROLLER, JOB, {}, None, id="nobody named: unknown, never guessed"),
        pytest.param(robot("one"), None, {}, ROBOTS, id="all service accounts of a namespace are one user"),
        pytest.param(robot("two"), JOB, {}, ROBOTS, id="whatever owner they forge"),
        pytest.param(robot("one"), None, {"owner": "bob"}, "bob", id="or their namespace's owner"),
        pytest.param(robot("one", "ops"), None, {}, "system:serviceaccounts:ops", id="also those of no team"),
        pytest.param(Requester("x" * 1_000), None, {}, "x" * 253, id="a name is only so long"),
        pytest.param(JOB_CONTROLLER, JOB, {"owner": "x" * 1_000}, "x" * 253, id="wherever it comes from"),
    ],
)
def test_the_user_behind_a_pod(requester, owner, annotations, want):
    place = world(policy(team(per_user=gpus(5))))
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {}, annotations))
    decision = admitted(admit(pod(1, owner=owner), requester, place))
    assert decision.charge.user == want
    assert [warning.code for warning in decision.warnings] == ([Code.UNKNOWN_USER] if want is None else [])


class TestTierLabel:
    def test_preemptible_by_choice_leaves_the_share_alone(self):
        decision = admitted(admit(pod(1, tier_label="preemptible"), ALICE, world()))
        assert (decision.charge.tier, decision.reason.code) == (Tier.PREEMPTIBLE, Code.BORROWS_BY_CHOICE)

    def test_guaranteed_means_never_borrow(self):
        place = world(policy(team(guaranteed=1)))
        assert admitted(admit(pod(1, tier_label="guaranteed"), ALICE, place)).charge.tier is Tier.GUARANTEED
        refused = admit(pod(2, tier_label="guaranteed"), ALICE, place)
        assert codes(refused) == [Code.GUARANTEED_SHARE_USED]
        assert refused.reasons[0].text.endswith(
            "; without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs now"
        )

    def test_who_would_have_to_wait_for_idle_gpus_hears_so(self):
        place = world(
            policy(team(guaranteed=1)), nodes=[node()], residents=[resident(10, node="n0", namespace="team-b")]
        )
        refused = admit(pod(2, tier_label="guaranteed"), ALICE, place)
        assert refused.reasons[0].text.endswith("and borrow idle GPUs once nodes have room")

    @pytest.mark.parametrize(
        ("asked", "held"),
        [
            pytest.param(pod(4, tier_label="guaranteed"), 0, id="the team's limit is in the way, too"),
            pytest.param(pod(1, tier_label="guaranteed", pool="gone"), 1, id="so is the pool"),
            pytest.param(pod(11, tier_label="guaranteed"), 0, id="so are the nodes"),
        ],
    )
    def test_nobody_is_told_to_drop_the_label_where_that_does_not_help(self, asked, held):
        place = world(policy(team(guaranteed=1, limit_=3)), residents=[resident(held)] if held else [])
        refused = admit(asked, ALICE, place)
        assert Code.GUARANTEED_SHARE_USED in codes(refused)
        assert not any("without label" in reason.text for reason in refused.reasons)

    def test_an_unknown_word_is_refused(self):
        assert codes(admit(pod(1, tier_label="gold"), ALICE, world())) == [Code.INVALID_REQUEST]


class TestTeams:
    def test_a_namespace_of_nobody_is_refused_or_borrows(self):
        stranger = pod(1, namespace="elsewhere")
        assert codes(admit(stranger, ALICE, world())) == [Code.UNKNOWN_TEAM]
        lenient = policy(defaults=Defaults(unknown_team=UnknownTeam.PREEMPTIBLE))
        decision = admitted(admit(stranger, ALICE, world(lenient)))
        assert (decision.charge.team, decision.charge.tier) == ("unassigned", Tier.PREEMPTIBLE)

    @pytest.mark.parametrize(
        ("namespace", "want"),
        [("vision", "exact"), ("vision-eu", "glob"), ("labelled", "selected")],
    )
    def test_an_exact_name_beats_a_glob_and_a_glob_a_selector(self, namespace, want):

        selector = LabelSelector((requirement("team", "In", "x"),))
        teams = (
            team("selected", namespaces=(), namespace_selector=selector),
            team("glob", namespaces=("vision*",)),
            team("exact", namespaces=("vision",)),
        )
        place = world(policy(*teams))
        place.set_namespace(NamespaceFacts(Namespace(namespace), {"team": "x"}))
        assert admitted(admit(pod(1, namespace=namespace), ALICE, place)).charge.team == want

    def test_a_namespace_that_changes_hands_takes_its_pods_along(self):

        selector = LabelSelector((requirement("team", "In", "x"),))
        place = world(policy(team("x", namespaces=(), namespace_selector=selector)))
        place.set_pod(resident(3, namespace="ns"))
        assert place.usage(TeamName("x")).total == 0
        place.set_namespace(NamespaceFacts(Namespace("ns"), {"team": "x"}))
        assert place.usage(TeamName("x")).total == gpus(3)


class TestOnlyCounted:
    @pytest.mark.parametrize("handling", [Handling.DAEMON_SET, Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER])
    def test_pods_placed_by_others_are_charged_and_held_to_the_limit(self, handling):
        place = world(policy(team(limit_=2)))
        decision = admit(pod(2, handling=handling), ALICE, place)
        assert isinstance(decision, NotApplicable)
        assert (decision.reason.code, decision.charge.gpus) == (Code.COUNTED_ONLY, gpus(2))
        assert codes(admit(pod(3, handling=handling), ALICE, place)) == [Code.TEAM_LIMIT_EXCEEDED]

    def test_a_static_pod_is_never_refused_but_only_a_kubelet_can_say_so(self):
        place = world(policy(team(limit_=1)))
        mirror = pod(2, handling=Handling.MIRROR)
        assert isinstance(admit(mirror, Requester("system:node:n0"), place), NotApplicable)
        assert codes(admit(mirror, ALICE, place)) == [Code.TEAM_LIMIT_EXCEEDED, Code.INVALID_REQUEST]

    def test_exempt_namespaces_are_counted_and_nothing_else(self):
        place = world(policy(team(limit_=1), exempt_namespaces=("kube-*",)))
        place.set_namespace(NamespaceFacts(Namespace("team-a"), {"fairgate.dev/exempt": "true"}))
        for namespace in ("kube-system", "team-a"):
            decision = admit(pod(2, namespace=namespace), ALICE, place)
            assert isinstance(decision, NotApplicable)
            assert (decision.reason.code, decision.charge.gpus) == (Code.EXEMPT, gpus(2))

    def test_a_pod_without_gpu_is_not_ours(self):
        decision = admit(pod(demand=demand(0)), ALICE, world())
        assert isinstance(decision, NotApplicable)
        assert (decision.reason.code, decision.charge) == (Code.NO_GPU, None)


class TestPlaces:
    def test_owned_pods_get_eight_nodes_bare_ones_more(self):
        place = world(nodes=[node(f"n{i:02}") for i in range(40)])
        assert len(admitted(admit(pod(1, owner=JOB), JOB_CONTROLLER, place)).steering.nodes) == 8
        assert len(admitted(admit(pod(1), ALICE, place)).steering.nodes) == 32

    @pytest.mark.parametrize(("mode", "want"), [("auto", 1), ("require", 1), ("prefer", 8)])
    def test_pods_that_are_spread_by_default_are_bound_to_one_node(self, mode, want):
        place = world(policy(placement=PlacementRules(Mode(mode))), nodes=[node(f"n{i}") for i in range(40)])
        deployed = pod(1, owner=Owner("ReplicaSet", "api-1"), is_spread_by_default=True)
        assert len(admitted(admit(deployed, JOB_CONTROLLER, place)).steering.nodes) == want

    def test_where_an_autoscaler_adds_nodes_the_choice_is_a_wish_so_that_a_new_one_would_do(self):
        place = world(policy(pools=(pool("cloud", is_autoscaled=True),)))
        steering = admitted(admit(pod(1), ALICE, place)).steering
        assert (steering.mode, steering.nodes[0]) == (Mode.PREFER, "n0")

    def test_the_pin_of_mode_require_names_one_node(self):
        place = world(policy(placement=PlacementRules(Mode.REQUIRE)))
        assert admitted(admit(pod(1), ALICE, place)).steering.nodes == ("n0",)

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(node("n0", is_ready=False), id="not ready"),
            pytest.param(node("n0", is_cordoned=True), id="cordoned"),
            pytest.param(node("n0", taints=(Taint("x", Effect.NO_SCHEDULE),)), id="tainted"),
            pytest.param(node("n0", cpu=1000), id="no cpu"),
            pytest.param(node("n0", memory=1), id="no memory"),
            pytest.param(node("n0", pods=0), id="no pod left"),
            pytest.param(node("n0", gpus=0), id="no GPU"),
        ],
    )
    def test_nodes_that_cannot_take_it_are_left_out(self, other):
        place = world(nodes=[other, node("n1")])
        assert admitted(admit(pod(1), ALICE, place)).steering.nodes == ("n1",)

    def test_the_pods_own_constraints_hold(self):
        nodes = [node("n0", labels={"zone": "a"}), node("n1", labels={"zone": "b"}), node("n2", labels={"zone": "b"})]
        place = world(nodes=nodes)
        constraints = Constraints(
            node_selector=(("zone", "b"),), terms=(NodeTerm((), (requirement("metadata.name", "NotIn", "n1"),)),)
        )
        assert admitted(admit(pod(1, constraints=constraints), ALICE, place)).steering.nodes == ("n2",)

    def test_no_room_now_admits_with_a_warning_and_no_node(self):
        place = world(nodes=[node("n0", gpus=2)], residents=[resident(2, node="n0")])
        decision = admitted(admit(pod(1), ALICE, place))
        assert (decision.steering.nodes, [w.code for w in decision.warnings]) == ((), [Code.NO_ROOM_NOW])

    def test_what_no_node_could_ever_hold_is_refused(self):
        assert codes(admit(pod(11), ALICE, world())) == [Code.NEVER_FITS]

    def test_conditions_we_do_not_evaluate_soften_the_mode(self):
        assert admitted(admit(pod(1, has_open_constraints=True), ALICE, world())).steering.mode is Mode.PREFER

    def test_mode_off_names_no_node(self):
        place = world(policy(placement=PlacementRules(Mode.OFF)))
        assert admitted(admit(pod(1), ALICE, place)).steering.nodes == ()


class TestPools:
    NODES = (
        node("a0", labels={"pool": "a"}, taints=(Taint("gpu", Effect.NO_SCHEDULE),)),
        node("b0", labels={"pool": "b", "mem": "81920"}),
    )
    A = pool(
        "a",
        node_selector=(("pool", "a"),),
        tolerations=(Toleration("gpu", exists=True),),
        capabilities=frozenset({"nvlink"}),
    )
    B = pool("b", affinity=(requirement("mem", "Gt", "40000"),), teams=frozenset({TeamName("team-b")}))

    def place(self, **more):
        return world(policy(team(), team("team-b"), pools=(self.A, self.B), **more), nodes=list(self.NODES))

    def test_the_chosen_pools_selector_and_tolerations_come_along(self):
        steering = admitted(admit(pod(1), ALICE, self.place())).steering
        assert (steering.pool, steering.nodes) == ("a", ("a0",))
        assert (steering.node_selector, steering.tolerations) == (self.A.node_selector, self.A.tolerations)

    def test_affinity_expressions_are_the_pools_terms(self):
        steering = admitted(admit(pod(1, namespace="team-b", pool="b"), ALICE, self.place())).steering
        assert (steering.nodes, steering.pool_terms) == (("b0",), (self.B.affinity,))

    def test_the_best_node_over_all_pools_wins(self):
        place = self.place()
        place.set_pod(resident(7, node="b0", namespace="team-b"))
        assert admitted(admit(pod(2, namespace="team-b"), ALICE, place)).steering.nodes == ("b0",)

    def test_pools_that_are_all_full_are_alternatives(self):
        place = self.place()
        for name in ("a0", "b0"):
            place.set_pod(resident(10, node=name, namespace="team-b"))
        steering = admitted(admit(pod(1, namespace="team-b"), ALICE, place)).steering
        assert steering.pool_terms == ((requirement("pool", "In", "a"),), self.B.affinity)
        assert (steering.nodes, steering.node_selector, steering.tolerations) == ((), (), self.A.tolerations)

    @pytest.mark.parametrize(
        ("asked", "want"),
        [
            pytest.param({"pool": "nowhere"}, Code.UNKNOWN_POOL, id="a pool that does not exist"),
            pytest.param({"pool": "b"}, Code.NO_POOL_ALLOWED, id="a pool of another team"),
            pytest.param({"requires": frozenset({"tpu"})}, Code.NO_POOL_ALLOWED, id="a capability nobody offers"),
        ],
    )
    def test_pins_and_requirements_that_cannot_be_met_are_refused(self, asked, want):
        assert codes(admit(pod(1, **asked), ALICE, self.place())) == [want]

    def test_a_pin_to_a_full_pool_is_refused_not_sent_elsewhere(self):
        place = self.place()
        place.set_pod(resident(10, node="a0"))
        assert codes(admit(pod(1, pool="a"), ALICE, place)) == [Code.POOL_FULL]

    def test_any_pool_that_offers_all_will_do(self):
        steering = admitted(admit(pod(1, requires=frozenset({"nvlink"})), ALICE, self.place())).steering
        assert steering.pool == "a"


class TestModels:
    NODES = (
        node("a0", gpus=4, model=A100, model_label="gpu.product", labels={"gpu.product": "A100"}),
        node("t0", gpus=8, model=T4, model_label="gpu.product", labels={"gpu.product": "T4"}),
    )
    TEAM = team(guaranteed=10, limit_=14, models={A100: Share(gpus(2), gpus(3))})

    def place(self):
        return world(policy(self.TEAM), nodes=list(self.NODES))

    def test_the_model_is_charged_and_pinned(self):
        decision = admitted(admit(pod(1), ALICE, self.place()))
        assert (decision.charge.model, decision.steering.nodes) == (A100, ("a0",))
        assert decision.steering.pool_terms == ((requirement("gpu.product", "In", "A100"),),)

    def test_over_the_models_limit_the_other_model_serves(self):
        place = self.place()
        place.set_pod(resident(3, node="a0"))
        assert admitted(admit(pod(1), ALICE, place)).charge.model == T4

    def test_a_pod_that_insists_on_the_model_is_refused(self):
        place = self.place()
        place.set_pod(resident(3, node="a0"))
        only = Constraints(node_selector=(("gpu.product", "A100"),))
        assert codes(admit(pod(1, constraints=only), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]

    def test_over_the_models_guaranteed_share_it_borrows(self):
        only = Constraints(node_selector=(("gpu.product", "A100"),))
        assert admitted(admit(pod(3, constraints=only), ALICE, self.place())).charge.tier is Tier.PREEMPTIBLE
        refused = admit(pod(3, constraints=only, tier_label="guaranteed"), ALICE, self.place())
        assert codes(refused) == [Code.GUARANTEED_SHARE_USED]


def test_a_tiers_priority_class_comes_as_a_triple_or_is_asked_for_again():
    place = world(policy(priority_classes={Tier.GUARANTEED: "high"}))
    assert isinstance(admit(pod(1), ALICE, place), Retry)
    place.set_priority_class(PriorityTriple("high", 1000))
    assert admitted(admit(pod(1), ALICE, place)).priority == PriorityTriple("high", 1000)
    assert admitted(admit(pod(1, priority_class="mine"), ALICE, place)).priority is None


def test_an_intact_decision_is_left_as_it_is_and_a_forged_one_is_made_anew():
    place = world(policy(team(guaranteed=1)))
    asked = pod(1)
    done = mutated(asked, admitted(admit(asked, ALICE, place)))
    again = admit(done, ALICE, place)
    assert isinstance(again, NotApplicable)
    assert again.reason.code is Code.ALREADY_DECIDED
    forged = done._replace(demand=demand(2))
    assert admitted(admit(forged, ALICE, place)).charge.tier is Tier.PREEMPTIBLE


@pytest.mark.parametrize("handling", [Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET])
@pytest.mark.parametrize(
    "forged", [{"team_label": "team-b"}, {"mark": "{}"}, {}], ids=["a team", "a decision", "a tier"]
)
def test_pods_that_others_place_carry_nothing_that_only_we_write(handling, forged):
    """The evictor believes labels: a pod of another scheduler could have others evicted for itself."""
    labelled = pod(1, handling=handling, tier_label="guaranteed", **forged)
    assert codes(verify(labelled, ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]
    for kept in ({}, {"tier_label": "preemptible"}):
        assert isinstance(admit(pod(1, handling=handling, **kept), ALICE, world()), NotApplicable)


def test_held_room_is_not_taken_past_the_taint():
    held = Taint("fairgate.dev/held", Effect.NO_SCHEDULE, "x")
    place = world(nodes=[node("n0", taints=(held,)), node("n1")])

    def asked(name):
        return admit(pod(1, handling=Handling.NODE_NAME, node_name=name), ALICE, place)

    assert codes(asked("n0")) == [Code.HELD_ROOM]
    assert isinstance(asked("n1"), NotApplicable)
    everything = Constraints(tolerations=(Toleration(exists=True, effect=Effect.NO_SCHEDULE),))
    elsewhere = pod(1, handling=Handling.FOREIGN_SCHEDULER, constraints=everything)
    assert codes(admit(elsewhere, ALICE, place)) == [Code.HELD_ROOM], "its scheduler may know no nominations"
    assert admitted(admit(pod(1, constraints=everything), ALICE, place)).steering.nodes == ("n1",)


def test_a_pod_that_is_decided_anew_still_asks_what_its_user_asked():
    place = world(policy(team(guaranteed=3)))
    asked = pod(2, tier_label="guaranteed")
    done = mutated(asked, admitted(admit(asked, ALICE, place)))
    place.set_pod(resident(2))
    assert codes(admit(done, ALICE, place)) == [Code.GUARANTEED_SHARE_USED], "never borrow"
    plain = mutated(pod(2), admitted(admit(pod(2), ALICE, world(policy(team(guaranteed=3))))))
    assert admitted(admit(plain, ALICE, place)).charge.tier is Tier.PREEMPTIBLE


def test_the_same_question_has_the_same_answer():
    def ask():
        return admit(pod(2), ALICE, world(residents=[resident(3, node="n2", uid="r")]))

    assert ask() == ask()
    assert ask().steering.nodes[0] == "n2"
    assert GPU in dict(ask().demand.devices)


def test_a_pod_of_a_namespace_that_is_still_to_be_seen_is_asked_again():
    place = World(policy(), is_live=True)
    place.set_node(node("n0"))
    asked = admit(pod(1), ALICE, place)
    assert isinstance(asked, Retry)
    assert asked.reason.code is Code.RACE_LOST
    place.set_namespace(NamespaceFacts(Namespace("team-a")))
    assert isinstance(admit(pod(1), ALICE, place), Admit)
