import pytest

from webhook.core.model.policy_addons import NotifyKind, NotifyRules, NotifyTarget, NotifyTemplate


def test_a_kind_is_wanted_if_any_target_gets_it():
    targets = (NotifyTarget("a", kinds=frozenset({NotifyKind.IDLE})), NotifyTarget("b", kinds=frozenset()))
    rules = NotifyRules(targets)
    assert [kind for kind in NotifyKind if rules.wants(kind)] == [NotifyKind.IDLE]
    assert not any(NotifyRules().wants(kind) for kind in NotifyKind)


@pytest.mark.parametrize(
    ("target", "want"),
    [
        (NotifyTarget("a", interval_seconds=60, repeat_seconds=600), 600),
        (NotifyTarget("a", interval_seconds=600, repeat_seconds=60), 600),
        (NotifyTarget("a", interval_seconds=60, template=NotifyTemplate.ALERTMANAGER), 60),
    ],
    ids=["at each repeat", "never within the interval", "to Alertmanager in each interval"],
)
def test_a_state_is_sent_again(target, want):
    assert target.again_seconds == want
