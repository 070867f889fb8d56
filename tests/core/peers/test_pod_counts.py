"""Counters of pods by node: updated by events, they equal a count of all pods."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import flight, node, pod, requirement, resident, world
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.decision import Charge
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule
from webhook.core.placement import pod_counts

NODES = ["n0", "n1"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "terminate", "remove", "advise", "assume", "drop", "lapse", "ask"]),
        st.integers(0, 3),
        st.sampled_from([*NODES, None]),
        st.sampled_from(["web", "db"]),
    ),
    max_size=30,
)


def of(app):
    return LabelSelector((requirement("app", "In", app),))


def apply(place, now, step):
    what, number, name, app = step
    uid, labels = f"u{number}", {"app": app}
    anti_affinity_rules = (AffinityRule(("host",), True, of(app)),) if number % 2 else ()
    if what in ("set", "terminate"):
        is_terminating = what == "terminate"
        seen = resident(
            uid=uid,
            node=name,
            packed=pack(labels),
            anti_affinity_rules=anti_affinity_rules,
            is_terminating=is_terminating,
        )
        place.set_pod(seen)
    elif what == "remove":
        place.remove_pod(uid)
    elif what == "advise" and name is not None:
        place.tentative.reserve(place.fleet, name, pod(labels=labels, topology=anti_affinity_rules), now=now)
    elif what == "assume":
        made = flight(pod(uid=uid, name=uid), Charge("team-a", Tier.GUARANTEED, 1), name)
        place.assume(made)
    elif what == "drop":
        place.drop_reservation(uid)
    elif what == "lapse":
        place.tentative.expire(place.fleet, now=now)
    else:
        place.pod_counts.on_nodes("team-a", of(app))


@given(STEPS)
def test_cached_counters_equal_a_new_count(steps):
    place = world(nodes=[node(name) for name in NODES])
    place.pod_counts.on_nodes("team-a", of("web"))
    for now, step in enumerate(steps):
        apply(place, float(now), step)
    for app in ("web", "db"):
        kept = dict(place.pod_counts.on_nodes("team-a", of(app)))
        fresh = pod_counts.PodCounts()
        fresh.sources.extend(place.pod_counts.sources)
        assert kept == fresh.on_nodes("team-a", of(app))
        placed = [(pod, node) for source in place.pod_counts.sources for pod, node in source("team-a")]
        keeping = Counter(node for pod, node in placed for rule in pod.anti_affinity_rules if rule.selector == of(app))
        found = place.pod_counts.against("team-b", {"app": app}) | place.pod_counts.against("team-a", {"app": app})
        assert sum(map(Counter, found.values()), Counter()) == keeping


def test_the_number_of_counters_is_bounded_and_the_oldest_is_recomputed(monkeypatch):
    monkeypatch.setattr(pod_counts, "MAX_COUNTERS", 2)
    place = world(residents=[resident(uid=app, node="n0", packed=pack({"app": app})) for app in "abc"])
    for app in "abcabc":
        assert place.pod_counts.on_nodes("team-a", of(app)) == {"n0": 1}
        place.remove_pod(app)
        assert place.pod_counts.on_nodes("team-a", of(app)) == {}
        place.set_pod(resident(uid=app, node="n0", packed=pack({"app": app})))
