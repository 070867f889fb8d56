"""Pods that no node can hold: refused only on evidence, with the missing resources, and never charged."""

import pytest

from tests.core.support.make import ALICE, GIB, GPU, demand, gpus, node, pod, policy, pool, resident, team, world
from tests.core.support.outcomes import admitted, outcome_of, selecting
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import GpuModel
from webhook.core.model.constraints import HELD, Constraints, Effect, Taint, Toleration
from webhook.core.model.decision import Deny, NotApplicable
from webhook.core.model.demand import ClaimRef
from webhook.core.model.pod import Handling
from webhook.core.model.policy import Mode, PlacementRules, Share
from webhook.core.model.reasons import Code

ADVICE = "; where an autoscaler brings such nodes, the admin marks their pool autoscaled"
A100, T4 = GpuModel("A100"), GpuModel("T4")
IN_A, IN_B = {"pool": "a"}, {"pool": "b"}
POOL_A = pool("a", node_selector=(("pool", "a"),))
GPU_TAINT = Taint("nvidia.com/gpu", Effect.NO_SCHEDULE)


class TestRefused:
    @pytest.mark.parametrize(
        ("asked", "want"),
        [
            pytest.param(
                pod(16),
                "no node could hold the pod: it asks for nvidia.com/gpu 16, the largest of 2 nodes has "
                "10; ask for less",
                id="more GPUs than any node has",
            ),
            pytest.param(
                pod(demand=demand(1, cpu=96_000, memory=2048 * GIB)),
                "no node could hold the pod: it asks for cpu 96, the largest of 2 nodes has 64 and "
                "memory 2Ti, the largest of 2 nodes has 512Gi; ask for less",
                id="more cpu and memory",
            ),
            pytest.param(
                pod(demand=demand(10, cpu=64_000)),
                "no node could hold the pod: it asks for cpu 64, memory 48Gi, nvidia.com/gpu 10 together, which none "
                "of 2 nodes has; ask for less",
                id="each is somewhere, but not on one node",
            ),
            pytest.param(
                pod(1, **selecting(pool="typo")),
                "no node could hold the pod: none of the 2 nodes meets its node selector and affinity; correct them",
                id="a selector that no node meets",
            ),
            pytest.param(
                pod(8, **selecting(pool="small")),
                "no node could hold the pod: it asks for nvidia.com/gpu 8, the only node that it may "
                "use has 4; ask for less",
                id="of those that its selector allows",
            ),
        ],
    )
    def test_with_what_is_too_much_and_where(self, asked, want):
        nodes = [node("n0", cpu=32_000), node("small", gpus=4, labels={"pool": "small"})]
        assert outcome_of(asked, world(nodes=nodes)) == ("refused", Code.NEVER_FITS, want + ADVICE)

    def test_with_amounts_that_read_differently(self):
        asked, nodes = pod(demand=demand(1, memory=2048 * GIB)), [node("n0", memory=2013 * GIB)]
        want = "no node could hold the pod: it asks for memory 2Ti, the only node has 2013Gi; ask for less"
        assert outcome_of(asked, world(nodes=nodes)) == ("refused", Code.NEVER_FITS, want + ADVICE)

    def test_only_nodes_of_the_pool_are_counted(self):
        nodes = [node("a", gpus=4, labels=IN_A)] + [node(f"b{i}", labels=IN_B) for i in range(12)]
        place = world(policy(pools=(POOL_A,)), nodes=nodes)
        assert outcome_of(pod(8), place)[2].startswith(
            "no node could hold the pod: it asks for nvidia.com/gpu 8, the only node of pool a has 4; "
        )

    def test_nothing_is_charged_and_exceeded_limits_are_listed_too(self):
        place = world(policy(team(limit_=10)))
        refused = admit(pod(16), ALICE, place)
        assert [reason.code for reason in refused.reasons] == [Code.TEAM_LIMIT_EXCEEDED, Code.NEVER_FITS]
        assert place.usage("team-a").total == 0

    def test_whether_nodes_are_open_and_free_does_not_matter(self):
        nodes = [node("n0", is_ready=False), node("n1", is_cordoned=True), node("n2", gpus=4)]
        place = world(nodes=nodes, residents=[resident(4, node="n2")])
        assert outcome_of(pod(10), place)[:2] == ("waits", Code.NO_ROOM_NOW)
        assert outcome_of(pod(11), place)[:2] == ("refused", Code.NEVER_FITS)


class TestNotRefused:
    BIG = pod(16)

    @pytest.mark.parametrize(
        ("asked", "place"),
        [
            pytest.param(BIG, world(nodes=[]), id="a world without nodes"),
            pytest.param(BIG, world(nodes=[node("cpu", gpus=0)]), id="no node has GPUs yet"),
            pytest.param(pod(1, **selecting(pool="x")), world(nodes=[node("cpu", gpus=0)]), id="nor any such label"),
            pytest.param(BIG, world(policy(pools=(POOL_A,))), id="the pool has no nodes yet"),
            pytest.param(BIG, world(policy(placement=PlacementRules(Mode.OFF))), id="placement is off"),
            pytest.param(
                BIG,
                world(policy(pools=(POOL_A, pool("more", is_autoscaled=True)))),
                id="an autoscaler may bring the node",
            ),
            pytest.param(
                pod(demand=demand(16, **{"rdma/hca": 1})), world(), id="a resource that no node has listed yet"
            ),
            pytest.param(pod(16, shares_by="default-scheduler"), world(), id="HAMi's webhook may not have seen it yet"),
            pytest.param(pod(2), world(nodes=[node(taints=(GPU_TAINT,))]), id="only taints keep it off"),
        ],
    )
    def test_it_waits_with_a_warning(self, asked, place):
        outcome, code, _ = outcome_of(asked, place)
        assert (outcome, code in (Code.NEVER_FITS, Code.NO_ROOM_NOW)) == ("waits", True)

    def test_with_claims_whose_devices_may_be_listed_later(self):
        place = world()
        decision = admit(pod(16, claims=(ClaimRef(claim="c"),)), ALICE, place)
        assert not isinstance(decision, Deny)

    @pytest.mark.parametrize("handling", [Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET, Handling.NODE_NAME])
    def test_externally_placed_pods(self, handling):
        assert isinstance(admit(pod(16, handling=handling), ALICE, world()), NotApplicable)


class TestWhy:
    def test_the_taints_that_keep_it_off_are_named(self):
        place = world(nodes=[node(taints=(GPU_TAINT,)), node("cpu", gpus=0)])
        assert outcome_of(pod(1), place) == (
            "waits",
            Code.NEVER_FITS,
            "the pod does not tolerate the taints (nvidia.com/gpu:NoSchedule) of the nodes that could hold it: 1 node",
        )

    @pytest.mark.parametrize("key", [HELD, "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"])
    def test_temporary_taints_are_no_reason_for_a_refusal(self, key):
        place = world(nodes=[node(taints=(Taint(key, Effect.NO_SCHEDULE), GPU_TAINT))])
        tolerant = pod(1, constraints=Constraints(tolerations=(Toleration("nvidia.com/gpu", exists=True),)))
        outcome, code, text = outcome_of(tolerant, place)
        assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
        assert (
            "not ready, cordoned or reserved for other pods: the pod waits; it fits on 1 node once empty and open"
            in text
        )

    @pytest.mark.parametrize(
        ("asked", "busy", "want"),
        [
            pytest.param(pod(4), resident(8, node="n0"), "no node has nvidia.com/gpu 4 free now", id="GPUs"),
            pytest.param(
                pod(4),
                resident(node="n0", demand=demand(1, cpu=60_000)),
                "no node has cpu 6 free now",
                id="cpu, with GPUs to spare",
            ),
        ],
    )
    def test_what_is_short_now_is_named(self, asked, busy, want):
        place = world(nodes=[node()], residents=[busy])
        assert outcome_of(asked, place)[2] == f"{want}: the pod waits; it fits on 1 node once empty and open"

    def test_nodes_of_a_model_at_its_limit_do_not_count(self):
        limited = team(models={A100: Share(0, gpus(8)), T4: Share(0, gpus(40))})
        nodes = [
            node("a", model=A100, model_label="m", labels={"m": A100}),
            node("t", gpus=4, model=T4, model_label="m", labels={"m": T4}),
        ]
        place = world(policy(limited), nodes=nodes, residents=[resident(8, node="a")])
        assert outcome_of(pod(6), place)[:2] == ("refused", Code.MODEL_LIMIT_EXCEEDED)
        assert outcome_of(pod(4), place)[0] == "runs"


class TestDevicesNotOfferedNow:
    """A device is unhealthy, or their plugin restarts: capacity still says how many there are."""

    RESTARTS = node("n0", gpus=0, at_best={GPU: 8})
    UNHEALTHY = node("n1", gpus=7, at_best={GPU: 8})

    @pytest.mark.parametrize(
        ("nodes", "want"),
        [
            ([RESTARTS], "node n0 offers 0 of 8 nvidia.com/gpu now: the pod waits; 1 node could hold it"),
            ([UNHEALTHY], "node n1 offers 7 of 8 nvidia.com/gpu now: the pod waits; 1 node could hold it"),
            ([RESTARTS, UNHEALTHY], "node n0 offers 0 of 8 nvidia.com/gpu now: the pod waits; 2 nodes could hold it"),
        ],
        ids=["plugin restarts", "one device is unhealthy", "both"],
    )
    def test_the_pod_waits_and_the_text_says_what_is_offered(self, nodes, want):
        outcome, code, text = outcome_of(pod(8), world(nodes=nodes))
        assert (outcome, code, text) == ("waits", Code.NO_ROOM_NOW, f"{want} with all of their devices")

    def test_more_than_the_node_ever_has_is_refused_by_what_it_has(self):
        outcome, code, text = outcome_of(pod(9), world(nodes=[self.UNHEALTHY]))
        assert (outcome, code) == ("refused", Code.NEVER_FITS)
        assert "it asks for nvidia.com/gpu 9, the only node has 8; ask for less" in text

    def test_a_pod_pinned_to_a_pool_is_refused_for_now(self):
        place = world(policy(pools=(pool("a"),)), nodes=[self.RESTARTS])
        outcome, code, text = outcome_of(pod(8, pool="a"), place)
        assert (outcome, code) == ("refused", Code.POOL_FULL)
        assert "node n0 offers 0 of 8 nvidia.com/gpu now" in text

    def test_nothing_is_placed_on_what_is_not_offered(self):
        place = world(nodes=[self.RESTARTS, node("n2", gpus=1)])
        decision = admitted(admit(pod(1), ALICE, place))
        assert decision.node_choice.nodes == ("n2",)
        assert outcome_of(pod(1), world(nodes=[self.RESTARTS]))[0] == "waits"

    def test_a_node_that_recovers_is_used_and_one_that_changes_is_forgotten(self):
        place = world(nodes=[self.RESTARTS])
        place.set_node(node("n0", gpus=8))
        assert outcome_of(pod(8), place)[0] == "runs"
        place.set_node(node("n0", gpus=2))
        assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)
        place.set_node(self.RESTARTS)
        place.remove_node("n0")
        place.set_node(node("n3", gpus=2))
        assert outcome_of(pod(8), place)[:2] == ("refused", Code.NEVER_FITS)
