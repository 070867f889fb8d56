"""TeamLedgers are decoded as they were encoded, and match their schema."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import claims
from tests.core.support.departments import department
from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import demand, gpus, policy, resident, team, world
from tests.core.support.make import pod as pod_
from tests.core.support.waiting import waiting
from webhook.core.explain.team_rows import ledger_row
from webhook.core.model.amounts import CPU, ONE_GPU, DepartmentName, GangId, GpuModel, NodeName, TeamName, Uid, User
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.decision import Charge
from webhook.core.model.demand import ClaimRef, Demand
from webhook.core.model.pod import Owner
from webhook.core.quota.charges import InFlightCharge, LedgerRecord, flight_of
from webhook.core.quota.usage import Moves, department_ledger
from webhook.core.world.ledger_session import LedgerSession
from webhook.kube.ledger.team_ledger import RecordReader, decode, encode, object_name, reclaiming

A = TeamName("team-a")
words = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12)
label_words = st.text("abc./-09", min_size=1, max_size=8)


def stored(body, version="7"):
    """The object as the API server returns it."""
    sent = json.loads(body)
    return json.dumps(sent | {"metadata": sent["metadata"] | {"uid": "u", "resourceVersion": version}}).encode()


def flights():
    return st.builds(
        lambda number, units, tier, model, user, node, owner, label, labels, takes_back: InFlightCharge(
            resident(
                1,
                uid=f"uid-{number}",
                tier=label,
                demand=Demand(units, (), ((CPU, 6000),)),
                owner=owner,
                user=user,
                packed=pack(labels),
            ),
            Charge(A, tier, units, model, user),
            node,
            takes_back=takes_back,
        ),
        st.integers(0, 1000),
        st.integers(1, 2**53) | st.builds(Fraction, st.integers(1, 2**53), st.integers(1, 10**9)),
        st.sampled_from(Tier),
        st.none() | words.map(GpuModel),
        st.none() | words.map(User),
        st.none() | words.map(NodeName),
        st.none() | st.builds(Owner, words, words),
        st.none() | st.sampled_from(["guaranteed", "preemptible"]),
        st.dictionaries(label_words, label_words, max_size=2),
        st.booleans(),
    )


@given(st.lists(flights(), max_size=4), st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_encoded_charges_are_decoded_unchanged(listed, folded, turn):
    record = LedgerRecord({flight.pod.uid: flight for flight in listed}, folded, turn)
    found = decode(stored(encode(record, ledger_row(A, world()), version=3)))
    assert (found.record, found.team, found.version) == (record, A, 7)
    reader = RecordReader()
    again, summary = reader.read(found), ledger_row(A, world())
    assert encode(again, summary, version=3, reader=reader) == encode(again, summary, version=3)


@pytest.mark.parametrize("rest", ["1/0", "1e99/3", "x", "-1/2"])
def test_a_malformed_rest_is_an_error(rest):
    charge = Charge(A, Tier.GUARANTEED, Fraction(7, 3))
    written = encode(
        LedgerRecord({"u": InFlightCharge(resident(1, uid="u"), charge, None)}), ledger_row(A, world()), version=3
    )
    assert b'"rest":"1/3"' in written
    with pytest.raises(ValueError, match="part of a GPU unit"):
        _ = decode(stored(written.replace(b"1/3", rest.encode()))).record


def test_the_evictor_reads_only_the_charges_of_pods_whose_room_it_makes():
    charge = Charge(A, Tier.GUARANTEED, gpus(1))
    plain, reclaims = (InFlightCharge(resident(1, uid=uid), charge, NodeName("n0")) for uid in ("plain", "reclaims"))
    reclaims = reclaims._replace(takes_back=True)
    flights = {each.pod.uid: each for each in (plain, reclaims)}
    found = decode(stored(encode(LedgerRecord(flights), ledger_row(A, world()), version=3)))
    (read,) = reclaiming(found).items()
    assert (read[0], read[1].charge, read[1].node, read[1].takes_back) == ("reclaims", charge, "n0", True)


def test_room_that_is_kept_for_a_gang_is_decoded_with_its_gang_and_its_time():
    gang = GangId("team-a/jobset.sigs.k8s.io/jobset-name=js")
    charge = Charge(A, Tier.GUARANTEED, gpus(1))
    kept = InFlightCharge(resident(1, uid="reserved:u:0", gang=gang), charge, NodeName("n0"), 300, 1_900_000_000)
    pod = InFlightCharge(resident(1, uid="u", gang=gang), charge, NodeName("n0"), 35)
    flights = {each.pod.uid: each for each in (kept, pod)}
    found = decode(stored(encode(LedgerRecord(flights), ledger_row(A, world()), version=3))).record.flights
    assert (found["reserved:u:0"].until, found["reserved:u:0"].pod.gang) == (kept.until, gang)
    assert (found["u"].until, found["u"].pod.gang) == (0, None), "of other charges it is not written"


def test_the_ledger_of_a_department_has_the_team_of_each_charge_and_its_members():
    left = department("left", limit_=9)
    above = world(policy(team(departments=(left,)), departments=(left,)), residents=[resident(2)])
    charges = {A: Charge(A, Tier.GUARANTEED, 1), "team-b": Charge(TeamName("team-b"), Tier.GUARANTEED, 2)}
    flights = {uid: InFlightCharge(resident(1, uid=uid), charge, None) for uid, charge in charges.items()}
    page = LedgerRecord(flights, 5, 1, Moves(members={A: 3}))
    found = decode(stored(encode(page, ledger_row(department_ledger(left.name), above), version=3)))
    assert {uid: each.charge for uid, each in found.record.flights.items()} == charges
    assert found.record.moves == page.moves
    assert found.team == "department left"
    assert found.metadata.name == object_name(found.team) == "department-left-xc2319a3cb2"
    assert (found.status.limit, found.status.used) == ("9", "2")


def test_the_moves_of_a_team_are_decoded_unchanged_and_left_out_where_there_are_none():
    moves = Moves(4, None, {DepartmentName("left"): 4})
    assert (
        decode(stored(encode(LedgerRecord({}, 5, 1, moves), ledger_row(A, world()), version=3))).record.moves == moves
    )
    plain = json.loads(encode(LedgerRecord(), ledger_row(A, world()), version=3))["ledger"]
    assert plain.keys() == {"folded", "turn", "inFlight"}


def test_the_status_is_in_gpus():
    place = world(policy(team(guaranteed=2.5, limit_=None)), residents=[resident(3), resident(1, tier="preemptible")])
    place.assume(InFlightCharge(resident(1), Charge(A, Tier.GUARANTEED, gpus(1)), None))
    status = json.loads(encode(LedgerRecord(), ledger_row(A, place), version=0))["status"]
    assert status == {
        "team": "team-a",
        "guaranteed": "2.5",
        "limit": "unlimited",
        "used": "5",
        "reserved": "1",
        "preemptible": "1",
        "beyondShare": "2.5",
        "waiting": "5",
        "inFlight": 0,
        "queued": 0,
        "queuedGpus": "",
        "lingering": "",
    }


def test_the_status_counts_the_pods_in_line_and_what_they_ask_for():
    place = world(policy(team()))
    for number in range(3):
        place.set_waiting(waiting(f"p{number}", 2))
    status = json.loads(encode(LedgerRecord(), ledger_row(A, place), version=0))["status"]
    assert (status["queued"], status["queuedGpus"], status["used"]) == (3, "6", "0")


def test_a_new_object_has_no_version_and_no_managed_fields():
    new, later = (json.loads(encode(LedgerRecord(), ledger_row(A, world()), version=v))["metadata"] for v in (0, 9))
    assert new == {"name": "team-a", "managedFields": [{}]}
    assert later == {"name": "team-a", "resourceVersion": "9", "managedFields": [{}]}


@pytest.mark.parametrize(
    ("name", "want"),
    [("vision", "vision"), ("a.b-c", "a.b-c"), ("Vision", "vision-x"), ("team_1", "team-1-x"), ("___", "team-x")],
)
def test_every_team_has_an_object_name(name, want):
    got = object_name(TeamName(name))
    assert got == want if want == name else got.startswith(want)


def test_names_that_differ_only_in_case_have_different_objects():
    assert len({object_name(TeamName(name)) for name in ("vision", "Vision", "VISION")}) == 3


def test_the_size_of_an_entry_is_limited():
    labels = {f"key-{number:05}": "x" * 63 for number in range(10_000)}
    large = {f"example.com/device-{number:05}": 1 for number in range(10_000)}
    pod = resident(
        demand=demand(2, **large), uid="u", owner=Owner("Job", "x" * 1_000_000), packed=pack(labels), name="p"
    )
    flight = InFlightCharge(pod, Charge(A, Tier.GUARANTEED, gpus(2)), None)
    body = encode(LedgerRecord({pod.uid: flight}), ledger_row(A, world()), version=0)
    assert len(body) < 2_000
    (found,) = decode(
        stored(encode(LedgerRecord({pod.uid: flight}), ledger_row(A, world()), version=3))
    ).record.flights.values()
    assert (found.charge, found.pod.demand.gpus) == (flight.charge, gpus(2))
    assert ("nvidia.com/gpu", 2) in found.pod.demand.requests, "devices come first"


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_what_a_pod_deleted_by_force_left_is_small_whatever_its_names_are(is_acknowledged):
    place, name = world(), "x" * 253
    large = {f"{name}/device-{number}": 1 for number in range(99)}
    pod = resident(
        demand=demand(2, **large),
        uid="u" * 36,
        namespace="y" * 63,
        owner=Owner("K" * 63, name),
        packed=pack({name: name}),
        name=name,
        node="n0",
        is_acknowledged=is_acknowledged,
    )
    (left,) = delete_by_force(place, pod)
    small = len(encode(LedgerRecord({}), ledger_row(A, place), version=3))
    body = encode(LedgerRecord({left.pod.uid: left}), ledger_row(A, place), version=3)
    assert len(body) - small < 900
    [found] = decode(stored(body)).record.flights.values()
    assert (found.charge, found.node, found.lingers) == (left.charge, left.node, left.lingers)
    assert found.pod.is_terminating, "rules between pods do not count it"


class Replica:
    """A replica's view of one team's ledger, which is passed on as bytes, and of a claim of four GPUs."""

    def __init__(self):
        self.world = claims.world(teams=(team(limit_=4), team("team-b")))
        self.world.set_claim(claims.SHARED, claims.spec(4), "c1")
        self.session = LedgerSession(self.world)

    def judge(self, uid):
        """Charge a pod that uses the claim."""
        pod = pod_(
            namespace=A, name=uid, uid=uid, demand=claims.bare(), claims=(claims.SHARING,), tier_label="guaranteed"
        )
        pod = pod._replace(demand=self.world.with_claims(pod).demand)
        self.session.charge(flight_of(pod, Charge(A, Tier.GUARANTEED, pod.demand.gpus)))

    def write(self, *others):
        """Write the ledger, and show it to others."""
        version = self.session.version + 1
        written = encode(self.session.next_record(), ledger_row(A, self.world), version=version)
        for replica in (self, *others):
            record = decode(stored(written, str(version))).record
            replica.session.see(record, version=version, identity="u")
            replica.session.drop_released(record.folded)

    @property
    def charged(self):
        return self.world.usage(A).total / ONE_GPU


def test_a_claim_that_two_pods_join_through_two_replicas_at_once_counts_once_if_either_is_never_created():
    for gone in ("a", "b"):
        one, other = Replica(), Replica()
        one.judge("a")
        other.judge("b")
        assert (one.charged, other.charged) == (4, 4)
        one.write(other)
        assert not other.session.drafts, "it lost the race, and is judged again"
        other.judge("b")
        other.write(one)
        assert (one.charged, other.charged) == (4, 4)
        one.session.withdraw(Uid(gone))
        one.write(other)
        assert (one.charged, other.charged) == (4, 4), "the pod that is left is charged"


def test_a_pod_in_flight_is_charged_for_its_claim_once_the_pod_that_was_has_ended():
    one, other = Replica(), Replica()
    running = claims.resident("a", claims.SHARING, version=5)
    for replica in (one, other):
        replica.world.set_pod(running)
    one.judge("b")
    one.write(other)
    assert (one.charged, other.charged) == (4, 4)
    other.world.remove_pod(Uid("a"))
    assert other.charged == 4, "no other pod gets the GPUs that the claim hands to this one"
    other.world.set_pod(claims.resident("b", claims.SHARING, version=7))
    assert other.charged == 4


def test_a_claim_whose_request_is_not_known_yet_counts_as_its_pod_was_charged():
    one, other = Replica(), Replica()
    other.world.set_claim(claims.SHARED, None)
    one.judge("a")
    one.write(other)
    assert other.charged == 4


def test_claims_are_decoded_as_they_were_encoded():
    refs = (claims.SHARING, ClaimRef(template="t", entry="e"), ClaimRef(template="t", group="g", entry="e"))
    flight = InFlightCharge(claims.resident("a", *refs), Charge(A, Tier.GUARANTEED, gpus(2)), None)
    read = decode(stored(encode(LedgerRecord({"a": flight}), ledger_row(A, world()), version=3))).record.flights["a"]
    assert (read.pod.claims, read.pod.demand.gpus, read.charge.gpus) == (refs, 0, gpus(2))
