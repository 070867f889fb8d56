"""The ledger record: the next state is exact for every evidence, and folded versions only rise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus, resident
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import EMPTY_LEDGER_RECORD, ENDED, UNSEEN, Alive, InFlightCharge, LedgerRecord, Unseen

UIDS = [Uid(f"u{number}") for number in range(6)]
EVIDENCE = st.sampled_from([UNSEEN, ENDED, Alive(3), Alive(12)])


def flight(uid, tier=Tier.GUARANTEED, *, label="guaranteed"):
    return InFlightCharge(resident(1, uid=uid, tier=label), Charge(TeamName("team-a"), tier, gpus(1)), None)


@given(
    st.sets(st.sampled_from(UIDS)),
    st.sets(st.sampled_from(UIDS)),
    st.sets(st.sampled_from(UIDS)),
    st.fixed_dictionaries(dict.fromkeys(UIDS, EVIDENCE)),
)
def test_only_unseen_charges_stay_and_only_pods_that_exist_are_folded(there, added, withdrawn, evidence):
    record = LedgerRecord({uid: flight(uid) for uid in there}, folded=5, turn=1)
    found = record.turned(evidence.__getitem__, added={uid: flight(uid) for uid in added}, withdrawn=withdrawn)
    assert (
        set(found.flights)
        == {uid for uid in there if isinstance(evidence[uid], Unseen) and uid not in withdrawn} | added
    )
    want = max([5, *(evidence[uid].version for uid in there if isinstance(evidence[uid], Alive))])
    assert (found.folded, found.turn) == (want, 2)
    assert [found.is_current_at(reached) for reached in (want - 1, want)] == [False, True]
    assert set(record.flights) == there, "a record is never changed"


def test_a_team_that_never_charged_is_current_at_once():
    assert EMPTY_LEDGER_RECORD.is_current_at(0)


@pytest.mark.parametrize(
    ("tier", "label", "want"),
    [
        (Tier.GUARANTEED, "preemptible", True),
        (Tier.GUARANTEED, "guaranteed", False),
        (Tier.GUARANTEED, None, False),
        (Tier.PREEMPTIBLE, "preemptible", False),
    ],
)
def test_a_promotion_charges_as_guaranteed_what_is_labeled_preemptible(tier, label, want):
    assert flight("u", tier, label=label).is_promotion is want
