"""A pod as its user requested it, read back from what is stored."""

from tests.core.support.make import ALICE, mutated, node, pod, policy, pool, requirement, world
from webhook.core.admission.admission import admit
from webhook.core.explain.explanation import explain
from webhook.core.model.constraints import HELD, Constraints, Effect, NodeTerm, Toleration
from webhook.core.model.decision import Admit, as_asked


def test_a_beneficiary_of_reclaim_is_not_mistaken_for_a_forgery():
    toleration = Toleration(HELD, value="h1", effect=Effect.NO_SCHEDULE)
    user = pod(2, constraints=Constraints(tolerations=(Toleration("own", exists=True),)))
    place = world()
    stored = mutated(user, admit(user, ALICE, place))
    helped = stored._replace(constraints=stored.constraints.joined(tolerations=(toleration,)))
    assert as_asked(helped, place.policy) == as_asked(stored, place.policy)
    bare = user._replace(constraints=user.constraints.joined(tolerations=(toleration,)))
    assert as_asked(bare, place.policy) == user
    assert isinstance(explain(as_asked(helped, place.policy), ALICE, place).decision, Admit)


def test_the_original_request_is_restored_from_a_decided_pod():
    a100 = pool("a100", node_selector=(("gpu", "a100"),), affinity=(requirement("memory", "Gt", "75000"),))
    rules = policy(pools=(a100,))
    nodes = [node(f"n{i}", labels={"gpu": "a100", "memory": "80000", "zone": "x"}) for i in range(3)]
    place = world(rules, nodes)
    for terms in (None, (NodeTerm((requirement("zone", "In", "x"),)),)):
        user = pod(2, constraints=Constraints(terms=terms), tier_label="preemptible")
        stored = mutated(user, admit(user, ALICE, place))
        assert stored.constraints != user.constraints
        again = as_asked(stored, rules)
        assert (again.constraints, again.tier_label, again.decision_annotation) == (
            user.constraints,
            "preemptible",
            None,
        )


def test_what_the_decision_says_is_the_users_stays():
    a100 = pool("a100", node_selector=(("gpu", "a100"),), affinity=(requirement("memory", "Gt", "75000"),))
    rules = policy(pools=(a100,))
    place = world(rules, [node("n0", labels={"gpu": "a100", "memory": "80000"})])
    user = pod(2, constraints=Constraints((("gpu", "a100"),)))
    stored = mutated(user, admit(user, ALICE, place))
    said = stored._replace(decision_annotation=stored.decision_annotation[:-1] + ',"own":"s"}')
    assert as_asked(said, rules).constraints == user.constraints
    assert as_asked(stored, rules).constraints == Constraints(), "a decision of an older version does not say it"
