"""TeamLedgers are decoded as they were encoded, and match their schema."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import demand, gpus, policy, resident, team, world
from webhook.core.explain.team_summary import summary_of
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand
from webhook.core.model.labels import pack
from webhook.core.model.names import CPU, GpuModel, NodeName, TeamName, User
from webhook.core.model.pod import Owner
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge, LedgerRecord
from webhook.kube.ledger.team_ledger import decode, encode, object_name

A = TeamName("team-a")
words = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12)
label_words = st.text("abc./-09", min_size=1, max_size=8)


def stored(body, version="7"):
    """The object as the API server returns it."""
    sent = json.loads(body)
    return json.dumps(sent | {"metadata": sent["metadata"] | {"uid": "u", "resourceVersion": version}}).encode()


def flights():
    return st.builds(
        lambda number, units, tier, model, user, node, owner, label, labels: InFlightCharge(
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
    )


@given(st.lists(flights(), max_size=4), st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_encoded_charges_are_decoded_unchanged(listed, folded, turn):
    page = LedgerRecord({flight.pod.uid: flight for flight in listed}, folded, turn)
    found = decode(stored(encode(page, summary_of(A, world()), version=3)))
    assert (found.page, found.team, found.version) == (page, A, 7)


@pytest.mark.parametrize("rest", ["1/0", "1e99/3", "x", "-1/2"])
def test_a_malformed_rest_is_an_error(rest):
    charge = Charge(A, Tier.GUARANTEED, Fraction(7, 3))
    written = encode(
        LedgerRecord({"u": InFlightCharge(resident(1, uid="u"), charge, None)}), summary_of(A, world()), version=3
    )
    assert b'"rest":"1/3"' in written
    with pytest.raises(ValueError, match="part of a GPU unit"):
        _ = decode(stored(written.replace(b"1/3", rest.encode()))).page


def test_the_status_is_in_gpus():
    place = world(policy(team(guaranteed=2.5, limit_=None)), residents=[resident(3), resident(1, tier="preemptible")])
    place.assume(InFlightCharge(resident(1), Charge(A, Tier.GUARANTEED, gpus(1)), None))
    status = json.loads(encode(LedgerRecord(), summary_of(A, place), version=0))["status"]
    assert status == {
        "team": "team-a",
        "guaranteed": "2.5",
        "limit": "unlimited",
        "used": "4",
        "reserved": "1",
        "borrowed": "2.5",
        "preemptible": "1",
        "waiting": "5",
        "inFlight": 0,
    }


def test_a_new_object_has_no_version_and_no_managed_fields():
    new, later = (json.loads(encode(LedgerRecord(), summary_of(A, world()), version=v))["metadata"] for v in (0, 9))
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
    body = encode(LedgerRecord({pod.uid: flight}), summary_of(A, world()), version=0)
    assert len(body) < 5_000
    (found,) = decode(
        stored(encode(LedgerRecord({pod.uid: flight}), summary_of(A, world()), version=3))
    ).page.flights.values()
    assert (found.charge, found.pod.demand.gpus) == (flight.charge, gpus(2))
    assert ("nvidia.com/gpu", 2) in found.pod.demand.requests, "devices come first"
