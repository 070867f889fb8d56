"""Usage and room: in any order of events, they equal what the remaining pods hold."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.support.make import GPU, gpus, node, policy, resident, team, world
from tests.examples import examples
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import Alive, Ended, InFlightCharge, Unseen

A = TeamName("team-a")
UIDS = [f"u{i}" for i in range(8)]
NODES = ["n0", "n1", None]


class WorldMachine(RuleBasedStateMachine):
    """Random admissions, watch events, losses and policy edits against a plain dictionary of the expected state."""

    def __init__(self):
        super().__init__()
        self.place = world(nodes=[node("n0"), node("n1")])
        self.want: dict[str, tuple[str, int, str | None]] = {}  # uid -> namespace, GPUs, node whose room it takes
        self.unseen: set[str] = set()
        self.assumed: set[str] = set()
        self.ended: set[str] = set()  # seen to end while the ledger lists them: they must not come back

    @rule(uid=st.sampled_from(UIDS), count=st.integers(1, 4), at=st.sampled_from(NODES))
    def assume(self, uid, count, at):
        made = resident(count, uid=uid)
        charge = Charge(A, Tier.GUARANTEED, made.demand.gpus)
        self.place.assume(InFlightCharge(made, charge, at))
        if uid not in self.want and uid not in self.ended:
            self.want[uid] = ("team-a", count, at)
            self.unseen.add(uid)
        self.assumed.add(uid)

    @rule(
        uid=st.sampled_from(UIDS),
        count=st.integers(1, 4),
        at=st.sampled_from(NODES),
        namespace=st.sampled_from(["team-a", "team-b"]),
    )
    def see(self, uid, count, at, namespace):
        if uid in self.ended:
            return  # no pod ever comes back under its UID
        if uid in self.want:
            namespace, count, promised = self.want[uid]
            at = at or promised  # a pod with a node, or a chosen one, keeps it until the watch shows another
            self.want[uid] = (namespace, count, at)
        else:
            self.want[uid] = (namespace, count, at)
        self.place.set_pod(resident(count, uid=uid, namespace=namespace, node=at))
        self.unseen.discard(uid)

    @rule(uid=st.sampled_from(UIDS))
    def end(self, uid):
        self.place.remove_pod(Uid(uid))
        self.want.pop(uid, None)
        if uid in self.assumed:
            self.ended.add(uid)
        self.unseen.discard(uid)

    @rule(uid=st.sampled_from(UIDS))
    def drop_reservation(self, uid):
        self.place.drop_reservation(Uid(uid))
        if uid in self.unseen:
            self.unseen.remove(uid)
            del self.want[uid]
        self.assumed.discard(uid)
        self.ended.discard(uid)

    @rule(guaranteed=st.integers(0, 20))
    def edit_policy(self, guaranteed):
        self.place.set_policy(policy(team(guaranteed=guaranteed), team("team-b")))

    @rule()
    def sort_nodes(self):
        self.place.sort_nodes()

    @invariant()
    def books_and_room_are_what_is_left(self):
        for name in ("team-a", "team-b"):
            book = self.place.usage(TeamName(name))
            mine = {uid: count for uid, (namespace, count, _) in self.want.items() if namespace == name}
            assert book.total == gpus(sum(mine.values()))
            assert book.reserved == gpus(sum(mine[uid] for uid in self.unseen if uid in mine))
            assert len(book) == len(mine)
        for name in ("n0", "n1"):
            taken = sum(count for _, count, at in self.want.values() if at == name)
            assert self.place.fleet.free(NodeName(name), GPU) == 10 - taken


TestWorld = WorldMachine.TestCase
TestWorld.settings = examples(30, stateful_step_count=30)


def test_evidence_of_a_reserved_pod_has_the_version_of_its_appearance():
    place = world()
    place.assume(InFlightCharge(resident(1, uid="u"), Charge(A, Tier.GUARANTEED, gpus(1)), NodeName("n0")))
    assert place.evidence(Uid("u")) == Unseen()
    place.set_pod(resident(1, uid="u", version=7))
    place.set_pod(resident(1, uid="u", node="n0", version=9))
    assert place.evidence(Uid("u")) == Alive(7)
    place.remove_pod(Uid("u"))
    assert place.evidence(Uid("u")) == Ended()


def test_a_pod_that_is_assumed_several_times_arrives_once():
    """A pod from the line is assumed when it is judged, and again when it is charged; the ledger may lose the race."""
    once, often = world(nodes=[node("n0")]), world(nodes=[node("n0")])
    made = resident(2, uid="p", node="n0")
    flight = InFlightCharge(made._replace(node=None), Charge(A, Tier.GUARANTEED, gpus(2)), NodeName("n0"))
    for place, times in ((once, 0), (often, 40)):
        for _ in range(times):
            place.assume(flight)
            place.drop_reservation(made.uid)
        place.assume(flight)
        place.set_pod(made)
        place.set_pod(made._replace(version=2))
    mixes = [place.fleet.gpus.demand_mix for place in (once, often)]
    assert mixes[0].expected(GPU) == mixes[1].expected(GPU)
    for mix in mixes:
        mix.note(made.demand)
    assert [mix.version for mix in mixes] == [0, 0], "far from the first comparison"
