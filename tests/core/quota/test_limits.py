"""Limits: every one that is broken, with its numbers."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import ALICE, gpus, limit, pod, policy, resident, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import GpuModel, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Share
from webhook.core.model.reasons import Code
from webhook.core.quota.limits import MOST_LINGERING, Account, Request, has_guaranteed_room, tier_for, violations
from webhook.core.quota.usage import TeamUsage, UsageEntry


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


A100 = GpuModel("A100")
LIMITS = st.none() | st.integers(0, 8)


def spent(held):
    """The usage of a team whose pods hold so many GPUs of a model, all guaranteed."""
    book = TeamUsage()
    charge = Charge(TeamName("team-a"), Tier.GUARANTEED, gpus(held), A100, ALICE.username)
    book.charge(Uid("held"), UsageEntry(charge, "team-a/Pod/held"))
    return book


@given(st.integers(0, 9), st.integers(0, 9), LIMITS, LIMITS, LIMITS)
def test_a_limit_is_broken_exactly_where_its_sum_exceeds_it(asked, held, total, per_pod, per_user):
    limited = team(limit_=total, per_pod=limit(per_pod), per_user=limit(per_user))
    request = Request(gpus(asked))
    account = Account(limited, spent(held), ALICE.username, pod(asked))
    sums = [(Code.POD_LIMIT_EXCEEDED, asked, per_pod), (Code.TEAM_LIMIT_EXCEEDED, held + asked, total)]
    sums.append((Code.USER_LIMIT_EXCEEDED, held + asked, per_user))
    want = [code for code, amount, bound in sums if bound is not None and amount > bound]
    assert [reason.code for reason in violations(request, account)] == want


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 8), st.none() | st.integers(0, 8))
def test_a_pod_is_guaranteed_while_the_shares_of_team_and_model_have_room(asked, held, share, of_model):
    models = {} if of_model is None else {A100: Share(gpus(of_model), gpus(9))}
    shared, book = team(guaranteed=share, models=models), spent(held)
    want = held + asked <= share and (of_model is None or held + asked <= of_model)
    assert has_guaranteed_room(gpus(asked), shared, book, A100) is want
    assert (tier_for(gpus(asked), shared, book, A100, requested=None) is Tier.GUARANTEED) is want
    assert tier_for(gpus(asked), shared, book, A100, requested=Tier.PREEMPTIBLE) is Tier.PREEMPTIBLE


def test_a_team_of_which_too_many_pods_linger_gets_no_other_and_others_do():
    place = world(policy(team(limit_=None), team("team-b")))
    left = delete_by_force(place, *(resident(1, node="n0", is_acknowledged=False) for _ in range(MOST_LINGERING)))
    refused = admit(pod(1), ALICE, place)
    assert codes(refused) == [Code.TOO_MANY_FORCE_DELETED]
    assert refused.reasons[0].text.startswith(
        "team team-a: its nodes may still run 100 pods deleted by force, and at most 100 may be"
    )
    assert admitted(admit(pod(1, namespace="team-b"), ALICE, place))
    place.drop_reservation(left[0].pod.uid)
    assert admitted(admit(pod(1), ALICE, place))
