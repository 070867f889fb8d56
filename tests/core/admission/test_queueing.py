"""Who waits in line, with what text, and who is refused at once."""

import json
from dataclasses import replace

import pytest

from tests.core.support.departments import department, tree_policy
from tests.core.support.make import ALICE, gpus, mutated, node, pod, policy, resident, team, world
from tests.core.support.outcomes import codes
from tests.core.support.waiting import confirmed, queued_pod, waiting
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import GpuModel, PoolName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Deny, NotApplicable, Queue, Retry
from webhook.core.model.policy import OnLimit, OnNoRoom, Pool, QueueRules, Share
from webhook.core.model.reasons import Code

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def full_team(**more):
    place = policy(team(guaranteed=20, limit_=20, **{**LIMITED, **more}), team("team-b"))
    return world(place, residents=[resident(10, node="n0"), resident(10, node="n1")])


def text_of(decision):
    assert isinstance(decision, Queue)
    return decision.reason.text


class TestOverTheLimit:
    def test_a_pod_waits_with_the_numbers_and_its_place(self):
        place = full_team()
        want = "waits: team team-a holds 20 of 20; next when 4 GPUs come back; 1st in the queue"
        assert text_of(admit(pod(4), ALICE, place)) == want
        place.set_waiting(waiting("first"))
        assert text_of(admit(pod(1), ALICE, place)).endswith("next when 1 GPU comes back; 2nd in the queue")

    @pytest.mark.parametrize(
        ("shares", "want"),
        [
            pytest.param(LIMITED, Retry, id="it is queued"),
            pytest.param({}, Deny, id="it is refused"),
        ],
    )
    def test_one_that_others_overtook_on_its_way_is_tried_again_where_it_would_wait(self, shares, want):
        place = world(policy(team(guaranteed=4, limit_=4, **shares)))
        final = mutated(pod(3), admit(pod(3), ALICE, place))
        place.set_pod(resident(2, node="n0"))
        assert isinstance(verify(final, ALICE, place), want)
        assert isinstance(admit(pod(3), ALICE, place), Queue if want is Retry else Deny)

    def test_one_that_could_never_start_is_refused_all_the_same(self):
        place = world(policy(team(guaranteed=4, limit_=4, **LIMITED)))
        final = mutated(pod(3), admit(pod(3), ALICE, place))
        place.set_policy(policy(team(guaranteed=2, limit_=2, **LIMITED)))
        assert codes(verify(final, ALICE, place)) == [Code.TEAM_LIMIT_EXCEEDED]

    def test_one_that_others_overtook_at_the_limit_of_a_model_is_tried_again(self):
        shares = {GpuModel("A100"): Share(gpus(0), gpus(4))}
        place = world(policy(team(**LIMITED, models=shares)), [node("n0", model="A100")])
        final = mutated(pod(3), admit(pod(3), ALICE, place))
        place.set_pod(resident(2, node="n0"))
        assert verify(final, ALICE, place).reason.code is Code.RACE_LOST

    def test_without_the_policy_it_is_refused_as_before(self):
        assert codes(admit(pod(4), ALICE, full_team(on_limit=OnLimit.REJECT))) == [Code.TEAM_LIMIT_EXCEEDED]

    def test_a_user_at_the_limit_waits_and_the_text_names_the_user(self):
        held = resident(4, node="n0", user=ALICE.username)
        place = world(policy(team(per_user=gpus(4), **LIMITED)), residents=[held])
        assert "user alice@example.com in team team-a holds 4 of 4" in text_of(admit(pod(1), ALICE, place))

    def test_a_pod_that_must_not_borrow_waits_for_its_share(self):
        place = world(policy(team(guaranteed=2, **LIMITED)), residents=[resident(2, node="n0")])
        decision = admit(pod(1, tier_label="guaranteed"), ALICE, place)
        assert "team team-a holds 2 of 2 of its guaranteed share; next when 1 GPU comes back" in text_of(decision)
        assert decision.requested_tier is Tier.GUARANTEED

    @pytest.mark.parametrize(
        ("asked", "want"),
        [
            pytest.param(pod(21), Code.TEAM_LIMIT_EXCEEDED, id="more than the limit even alone"),
            pytest.param(pod(11), Code.NEVER_FITS, id="more than the largest node"),
            pytest.param(pod(1, pool="none"), Code.UNKNOWN_POOL, id="an unknown pool"),
            pytest.param(pod(1, tier_label="gold"), Code.INVALID_REQUEST, id="an unknown tier"),
        ],
    )
    def test_what_can_never_start_is_refused_at_once(self, asked, want):
        place = full_team()
        decision = admit(asked, ALICE, place)
        assert isinstance(decision, Deny)
        assert want in codes(decision)

    @pytest.mark.parametrize(
        ("asked", "want"),
        [
            pytest.param(
                pod(9),
                "team team-a: requested 9, limit 8, used 8, reserved 0; largest holders: team-a/Pod/p1 8; no request"
                " would pass now: wait until a holder ends, or delete one; one of more than 8 never will",
                id="the limit",
            ),
            pytest.param(
                pod(5, tier_label="guaranteed"),
                "team team-a, guaranteed share: requested 5, limit 4, used 4; largest holders: team-a/Pod/p1 4;"
                " no request would pass now: wait until a holder ends, or delete one; one of more than 4 never will",
                id="the guaranteed share",
            ),
            pytest.param(
                pod(9, foreign_gates=("example.com/gate",)),
                "team team-a: requested 9, limit 8, used 8, reserved 0; largest holders: team-a/Pod/p1 8; no request"
                " would pass now: wait until a holder ends, or delete one; one of more than 8 never will",
                id="behind another gate",
            ),
        ],
    )
    def test_the_refusal_of_what_can_never_start_says_what_is_used_now(self, asked, want):
        held = 4 if asked.tier_label else 8
        place = world(policy(team(guaranteed=4, limit_=8, **LIMITED)), residents=[resident(held, node="n0", name="p1")])
        decision = admit(asked, ALICE, place)
        assert [reason.text for reason in decision.reasons] == [want]

    def test_a_full_queue_refuses_with_its_depth(self):
        place = policy(team(guaranteed=1, limit_=1, **LIMITED), queue=QueueRules(depth=2))
        filled = world(place, residents=[resident(1, node="n0")])
        filled.set_waiting(waiting("seen"))
        filled.waiting.expect(waiting("on-its-way").uid, "team-a", now=0)
        decision = admit(pod(1), ALICE, filled)
        assert codes(decision) == [Code.QUEUE_FULL]
        assert "2 pods are queued, which is all that its queue holds (2)" in decision.reasons[0].text
        filled.set_policy(replace(filled.policy, queue=QueueRules(depth=1)))
        filled.waiting.discard(waiting("on-its-way").uid)
        assert "1 pod is queued, which is all" in admit(pod(1), ALICE, filled).reasons[0].text


class TestKeptOutByBorrowers:
    """`left` has 9 GPUs; team-a holds 3 of its 4 guaranteed ones and borrows 5, team-b is guaranteed 4."""

    def place(self, *, borrowed=5, limit=9, **shares):
        tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=limit), guaranteed=4)
        tree = replace(tree, teams=tuple(replace(each, **shares) for each in tree.teams))
        held = [resident(3), resident(borrowed, tier="preemptible")]
        return world(tree, residents=held)

    def test_a_pod_inside_its_share_waits_although_policy_says_reject(self):
        decision = admit(pod(2, namespace="team-b"), ALICE, self.place())
        assert text_of(decision) == (
            "waits: department left holds 8 of 9, 5 of them borrowed; it is inside team team-b's guaranteed share,"
            " so 1 GPU can be reclaimed; 1st in the queue"
        )
        assert decision.reason.code is Code.WAITS_FOR_BORROWERS

    def test_the_final_pod_is_let_into_the_line(self):
        place = self.place()
        asked = pod(2, namespace="team-b")
        final = confirmed(asked, admit(asked, ALICE, place))
        assert isinstance(verify(final, ALICE, place), Queue)

    @pytest.mark.parametrize(
        "asked",
        [
            pytest.param(pod(5, namespace="team-b"), id="beyond its share"),
            pytest.param(pod(2, namespace="team-b", tier_label="preemptible"), id="borrows by choice"),
            pytest.param(pod(2), id="of the team that borrows"),
        ],
    )
    def test_others_are_refused_as_before(self, asked):
        assert codes(admit(asked, ALICE, self.place())) == [Code.DEPARTMENT_LIMIT_EXCEEDED]

    def test_it_is_refused_where_too_little_is_borrowed(self):
        """After a limit was lowered below what guaranteed pods hold, no eviction makes room."""
        place = self.place(borrowed=1, limit=3)
        assert codes(admit(pod(3, namespace="team-b"), ALICE, place)) == [Code.DEPARTMENT_LIMIT_EXCEEDED]

    def test_over_the_limit_of_its_own_team_it_is_refused_unless_policy_says_queue(self):
        def asked(**shares):
            held = [resident(4, namespace="team-b", tier="preemptible", requested_tier=Tier.PREEMPTIBLE)]
            made = world(policy(team(), team("team-b", guaranteed=4, limit_=4, **shares)), residents=held)
            return admit(pod(1, namespace="team-b"), ALICE, made)

        assert codes(asked()) == [Code.TEAM_LIMIT_EXCEEDED]
        text = text_of(asked(**LIMITED))
        assert text.startswith("waits: team team-b holds 4 of 4, 4 of them borrowed; it is inside team team-b's")

    def test_pods_of_its_team_that_run_ahead_of_others_use_its_share(self):
        """They run as preemptible for now, and are not evicted for a pod that came later."""
        ahead = resident(4, namespace="team-b", tier="preemptible", is_backfill=True)
        held = [ahead, resident(2, tier="preemptible")]
        tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=6), guaranteed=4)
        refused = admit(pod(1, namespace="team-b"), ALICE, world(tree, residents=held))
        assert codes(refused) == [Code.DEPARTMENT_LIMIT_EXCEEDED]

    def test_at_a_limit_per_user_it_is_refused(self):
        place = self.place(per_user=gpus(1))
        assert Code.USER_LIMIT_EXCEEDED in codes(admit(pod(2, namespace="team-b"), ALICE, place))

    def test_a_full_queue_refuses_it(self):
        place = self.place(queue_depth=0)
        assert codes(admit(pod(2, namespace="team-b"), ALICE, place)) == [Code.QUEUE_FULL]

    def test_a_borrower_that_waits_names_the_room_that_is_kept(self):
        place = self.place(**LIMITED)
        place.set_waiting(waiting("kept", 1, namespace="team-b", keeps_room=True))
        text = text_of(admit(pod(1, tier_label="preemptible"), ALICE, place))
        assert text.startswith(
            "waits: department left holds 8 of 9, 1 reserved for pods inside their guaranteed shares; next when 1 GPU"
        )


class TestNoRoom:
    def test_a_pod_inside_its_limits_waits_uncharged_until_a_node_has_room(self):
        place = world(policy(team(**LIMITED)), nodes=[node()], residents=[resident(10, node="n0", namespace="team-b")])
        decision = admit(pod(2), ALICE, place)
        assert decision.reason.code is Code.WAITS_FOR_ROOM
        assert decision.reason.text.endswith("; 1st in the queue")

    def test_by_default_it_waits_in_kube_scheduler(self):
        place = world(policy(team()), nodes=[node()], residents=[resident(10, node="n0", namespace="team-b")])
        assert isinstance(admit(pod(2), ALICE, place), Admit)

    def test_in_a_pool_with_an_autoscaler_it_waits_in_kube_scheduler(self):
        growing = Pool(PoolName("cloud"), is_autoscaled=True)
        place = world(policy(team(**LIMITED), pools=(growing,)), nodes=[])
        assert isinstance(admit(pod(2), ALICE, place), Admit)


class TestOrder:
    def test_a_pod_that_fits_waits_behind_those_of_its_team(self):
        place = world(policy(team(**LIMITED), team("team-b", **LIMITED)))
        place.set_waiting(waiting("first"))
        assert admit(pod(1), ALICE, place).reason.code is Code.WAITS_IN_LINE
        assert isinstance(admit(pod(1, namespace="team-b"), ALICE, place), Admit), "the line of another team"

    def test_pods_that_other_controllers_hold_are_no_line(self):
        place = world(policy(team(**LIMITED)))
        place.set_waiting(waiting("held", foreign_gates=("kueue.x-k8s.io/admission",)))
        assert isinstance(admit(pod(1), ALICE, place), Admit)


def test_a_pod_behind_a_foreign_gate_is_neither_charged_nor_bound_yet():
    decision = admit(pod(1, foreign_gates=("kueue.x-k8s.io/admission",)), ALICE, world())
    assert decision.reason.code is Code.WAITS_FOR_GATE
    assert "kueue.x-k8s.io/admission" in decision.reason.text


def test_a_full_line_refuses_a_pod_behind_a_foreign_gate_only_where_policy_has_a_line():
    held = pod(1, foreign_gates=("kueue.x-k8s.io/admission",))
    rules = QueueRules(depth=0)
    assert codes(admit(held, ALICE, world(policy(team(**LIMITED), queue=rules)))) == [Code.QUEUE_FULL]
    place = world(policy(team(), queue=rules))
    decision = admit(held, ALICE, place)
    assert isinstance(decision, Admit), "it is charged at once"
    assert isinstance(verify(mutated(held, decision), ALICE, place), Admit)


class TestTheFinalObject:
    def test_an_intact_one_waits_and_is_charged_nothing(self):
        place = full_team()
        decision = verify(confirmed(pod(4), admit(pod(4), ALICE, place)), ALICE, place)
        assert isinstance(decision, Queue)
        assert place.usage("team-a").total == gpus(20)

    def test_mutating_it_again_changes_nothing(self):
        place = full_team()
        stored = confirmed(pod(4), admit(pod(4), ALICE, place))
        assert isinstance(admit(stored, ALICE, place), NotApplicable)

    def test_a_gate_without_the_mutation_is_asked_again(self):
        assert isinstance(verify(pod(1, is_queued=True), ALICE, full_team()), Retry)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"demand": pod(1).demand}, id="a smaller request"),
            pytest.param({"team_label": "team-b"}, id="another team"),
            pytest.param({"tier_label": "guaranteed"}, id="another tier"),
            pytest.param({"decision_annotation": "{}"}, id="no decision"),
        ],
    )
    def test_an_altered_one_is_refused(self, change):
        place = full_team()
        stored = confirmed(pod(4), admit(pod(4), ALICE, place))._replace(**change)
        assert codes(verify(stored, ALICE, place)) == [Code.MUTATION_ALTERED]

    def test_another_user_than_the_one_in_the_decision_is_refused(self):
        place = full_team()
        stored = confirmed(pod(4), admit(pod(4), ALICE, place))
        decision = json.loads(stored.decision_annotation) | {"user": "bob"}
        assert codes(verify(stored._replace(decision_annotation=json.dumps(decision)), ALICE, place)) == [
            Code.MUTATION_ALTERED
        ]

    def test_without_the_gate_a_queued_decision_admits_nothing(self):
        place = world(policy(team(**LIMITED)))
        place.set_waiting(waiting("first"))
        stored = confirmed(pod(1), admit(pod(1), ALICE, place))._replace(is_queued=False, tier_label="guaranteed")
        assert codes(verify(stored, ALICE, place)) == [Code.MUTATION_ALTERED]

    def test_an_edit_of_the_policy_meanwhile_is_asked_again(self):
        place = full_team()
        stored = confirmed(pod(4), admit(pod(4), ALICE, place))
        place.set_policy(policy(team(**LIMITED), hash="p2"))
        assert isinstance(verify(stored, ALICE, place), Retry)


def test_the_builder_is_what_the_patch_writes():
    place = full_team()
    assert queued_pod(pod(4), admit(pod(4), ALICE, place)).is_queued
