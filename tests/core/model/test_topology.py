"""Topology rules, and the domains of nodes against a plain mapping."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import requirement
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule, Domains, SpreadRule, anti_affinity, asked_labels

WEB = LabelSelector((requirement("app", "In", "web"),))
VALUES = ["a", "b", "12", "-3", "1_0", None]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(VALUES)), max_size=20), st.integers(0, 63))
def test_domains_are_those_of_the_labels(changes, among):
    domains, labels = Domains(), {}
    for slot, value in changes:
        domains.set(slot, value)
        labels[slot] = value
        known = {slot: value for slot, value in labels.items() if value is not None}
        want = {value: sum(1 << s for s, other in known.items() if other == value) for value in known.values()}
        assert domains.members == want
        assert domains.bits == sum(1 << slot for slot in known)
        assert [domains.value(slot) for slot in range(6)] == [labels.get(slot) for slot in range(6)]
        assert domains.number(among) == sum(bool(members & among) for members in want.values())
        assert domains.are_single is (len(want) == len(known))
        assert set(domains.numbers) == want.keys() & {"12", "-3"}


def test_a_rule_applies_in_its_own_namespace_unless_it_names_others():
    at_home, named = AffinityRule(("host",), True, WEB), AffinityRule(("host",), True, WEB, namespaces=("x",))
    assert at_home.applies_to("home", {"app": "web"}, home="home", about={})
    assert not at_home.applies_to("x", {"app": "web"}, home="home", about={})
    assert named.applies_to("x", {"app": "web"}, home="home", about={})
    assert not named.applies_to("home", {"app": "web"}, home="home", about={})
    assert not at_home.applies_to("home", {}, home="home", about={})
    assert not AffinityRule(("host",), True, None).applies_to("home", {"app": "web"}, home="home", about={})
    selected = named._replace(namespaces=("x", *EVERY_NAMESPACE), where=WEB)
    where = [("x", {}), ("y", {"app": "web"}), ("y", {})]
    assert [selected.applies_to(each, {"app": "web"}, home="home", about=labels) for each, labels in where] == [
        *(True, True, False)
    ]


def test_only_a_hard_spread_of_several_domains_needs_all_nodes():
    rules = [SpreadRule("zone", 1, is_hard, WEB, least) for is_hard in (True, False) for least in (1, 2)]
    assert [rule.needs_all_nodes for rule in rules] == [False, True, False, False]
    assert not SpreadRule("zone", 1, True, WEB, 2, honors_affinity=False).needs_all_nodes


def test_required_anti_affinity_is_separated_from_other_rules():
    apart = AffinityRule(("host",), True, WEB)
    others = (SpreadRule("zone", 1, True, WEB), AffinityRule(("host",), False, WEB), apart._replace(weight=3))
    assert anti_affinity((*others, apart)) == (apart,)


def test_rules_ask_for_the_labels_that_their_selectors_read():
    rules = (SpreadRule("zone", 1, True, WEB), SpreadRule("zone", 1, True, None))
    assert asked_labels(rules, {"app": "web", "commit": "1"}) == {"app": "web"}
    assert asked_labels(rules, {"commit": "1"}) == {}
