"""Sums of teams stand for pods that are not shown: limits hold as if they were."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, gpus, node, pod, policy, resident, team, world
from tests.examples import examples
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Deny
from webhook.core.world.hidden_usage import ANY, Totals, add_hidden_usage, is_hidden_usage

A = TeamName("team-a")


def totals(total, preemptible=0, waiting=0):
    return Totals(A, gpus(total), gpus(preemptible), gpus(waiting))


def test_only_missing_usage_is_added():
    place = world(residents=[resident(2, node="n0"), resident(1, node="n0", tier="preemptible")])
    add_hidden_usage(place, [totals(10, preemptible=4)])
    book = place.usage(A)
    assert (book.total, book.preemptible, book.waiting) == (gpus(10), gpus(4), 0)
    assert dict(book.largest_holders())[f"{ANY}/Pod/{ANY}"] == gpus(7)
    assert sum(is_hidden_usage(each) for each in place.pods()) == 2


def test_sums_in_fractions_of_units_are_kept():
    place = world()
    add_hidden_usage(place, [Totals(A, gpus(1) + Fraction(2, 3), Fraction(1, 3), 0)])
    assert (place.usage(A).total, place.usage(A).preemptible) == (gpus(1) + Fraction(2, 3), Fraction(1, 3))


def test_waiting_usage_is_on_no_node():
    place = world()
    add_hidden_usage(place, [totals(5, preemptible=2, waiting=3)])
    assert place.usage(A).waiting == gpus(3)


def test_a_limit_holds_against_pods_that_are_not_shown():
    place = world(policy(team(guaranteed=4, limit_=8)), nodes=[node()])
    assert isinstance(admit(pod(2), ALICE, place), Admit)
    add_hidden_usage(place, [totals(7)])
    refused = admit(pod(2), ALICE, place)
    assert isinstance(refused, Deny)
    assert "limit 8, used 7" in refused.reasons[0].text
    borrowed = admit(pod(1), ALICE, place)
    assert isinstance(borrowed, Admit)
    assert borrowed.charge.tier is Tier.PREEMPTIBLE


@examples(100)
@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_sum_is_the_larger_of_the_ledger_and_the_shown_pods(shown, total, preemptible, waiting):
    preemptible, waiting = min(preemptible, total), min(waiting, total)
    place = world(residents=[resident(each, node="n0") for each in shown])
    add_hidden_usage(place, [totals(total, preemptible, waiting)])
    book = place.usage(A)
    assert book.total == gpus(max(total, sum(shown)))
    assert book.preemptible == gpus(min(preemptible, max(0, total - sum(shown))))
    assert book.waiting <= gpus(waiting)
