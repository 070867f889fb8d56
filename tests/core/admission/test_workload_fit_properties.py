"""The workload check agrees with the decisions on the pods, one after another, in an empty cluster."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import JOB, JOB_CONTROLLER, commit, gpus, mutated, node, pod, policy, team, world
from tests.examples import examples
from webhook.core.admission.admission import admit
from webhook.core.admission.workload_fit import Part, fit_problems
from webhook.core.model.amounts import ONE_GPU, UNLIMITED
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.reasons import Code

amounts = st.integers(1, 6)


@st.composite
def settings_of_a_team(draw):
    guaranteed = draw(st.integers(0, 12))
    limit = draw(st.none() | st.integers(guaranteed, 24))
    per_pod = draw(st.none() | st.integers(1, 6))
    return team(guaranteed=guaranteed, limit_=limit, per_pod=UNLIMITED if per_pod is None else gpus(per_pod))


@given(settings_of_a_team(), amounts, st.integers(1, 16), st.lists(st.integers(1, 8), min_size=1, max_size=4))
@examples(50)
def test_pods_are_admitted_one_by_one_exactly_as_predicted(owner, each, count, sizes):
    place = world(policy(owner), [node(f"n{i}", gpus=size) for i, size in enumerate(sizes)])
    said = {reason.code for reason in fit_problems([Part("", pod(each, owner=JOB), count)], JOB_CONTROLLER, place)}
    entered, refused, waiting = 0, set(), 0
    for number in range(count):
        asked = pod(each, name=f"p{number}", owner=JOB)
        decision = admit(asked, JOB_CONTROLLER, place)
        if isinstance(decision, Deny):
            refused |= {reason.code for reason in decision.reasons}
            assert (Code.NEVER_FITS in refused) == (max(sizes) < each)
            continue
        assert isinstance(decision, Admit)
        entered += 1
        waiting += not decision.node_choice.nodes
        nodes = decision.node_choice.nodes
        commit(place, mutated(asked, decision, uid=f"u{number}"), decision.charge, nodes[0] if nodes else None)
    assert (Code.POD_LIMIT_EXCEEDED in said) == (Code.POD_LIMIT_EXCEEDED in refused)
    room = sum(size // each for size in sizes)
    assert (Code.NEVER_FITS in said) == (count > room)
    assert waiting == max(0, entered - room)
    limit = owner.gpus.limit
    if refused & {Code.POD_LIMIT_EXCEEDED, Code.NEVER_FITS}:
        assert entered == 0
    else:
        assert (Code.TEAM_LIMIT_EXCEEDED in said) == (Code.TEAM_LIMIT_EXCEEDED in refused)
        assert entered == (count if limit is UNLIMITED else min(count, limit // (each * ONE_GPU)))


@given(settings_of_a_team(), amounts, st.integers(1, 16))
def test_more_pods_never_fit_better(owner, each, count):
    place = world(policy(owner))

    def said(number):
        return {reason.code for reason in fit_problems([Part("", pod(each, owner=JOB), number)], JOB_CONTROLLER, place)}

    assert said(count) <= said(count + 1)


@given(settings_of_a_team(), amounts, st.integers(2, 16))
def test_it_makes_no_difference_to_a_limit_how_pods_are_divided_into_roles(owner, each, count):
    place = world(policy(owner))

    def limits(*parts):
        return {
            reason for reason in fit_problems(parts, JOB_CONTROLLER, place) if reason.code is Code.TEAM_LIMIT_EXCEEDED
        }

    one = pod(each, owner=JOB)
    assert limits(Part("", one, count)) == limits(Part("a", one, 1), Part("b", one, count - 1))
