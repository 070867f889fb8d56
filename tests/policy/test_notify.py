"""The section `notify`: every mistake is reported, and what is right reaches the core."""

from fractions import Fraction

import pytest

from webhook.core.model.policy_addons import NotifyKind, NotifyTarget, NotifyTemplate, SecretHeader
from webhook.policy.addons import MAX_TARGETS, MAX_URL
from webhook.policy.documents import PolicyError
from webhook.policy.watch import load

TARGET = "notify: {targets: [{name: t, %s}]}"
OK = "url: 'https://h/x'"

PROBLEMS = {
    "no address": (TARGET % "interval: 1h", "targets[0]: expected exactly one of url and urlFile"),
    "two addresses": (TARGET % f"{OK}, urlFile: u", "targets[0]: expected exactly one of url and urlFile"),
    "no URL": (TARGET % "url: h", "targets[0].url: expected a URL such as https://alerts.example.com/hook"),
    "another scheme": (TARGET % "url: 'file:///etc/passwd'", "targets[0].url: expected a URL such as https"),
    "a bad port": (TARGET % "url: 'https://h:99999/'", "targets[0].url: expected a URL such as https"),
    "a bad host": (TARGET % "url: 'https://[::1/'", "targets[0].url: expected a URL such as https"),
    "no host": (TARGET % "url: 'https:///x'", "targets[0].url: expected a URL such as https"),
    "a line break": (TARGET % 'url: "https://h/\\r\\nX: y"', "targets[0].url: expected a URL of at most"),
    "a long URL": (TARGET % f"url: 'https://h/{'x' * MAX_URL}'", "targets[0].url: expected a URL of at most 2048"),
    "a password": (TARGET % "url: 'https://u:p@h/'", "targets[0].url: a user or password in the URL"),
    "a fragment": (TARGET % "url: 'https://h/#x'", "targets[0].url: a URL to send to has no fragment"),
    "Slack": (TARGET % "url: 'https://hooks.slack.com/services/T/B/x'", "targets[0].url: Slack takes no alerts"),
    "a secret in clear text": (
        TARGET % "url: 'http://h/', tokenFile: t",
        "targets[0]: a secret would be sent in clear",
    ),
    "two secrets": (
        TARGET % f"{OK}, tokenFile: t, header: {{name: X, file: f}}",
        "targets[0]: expected at most one of",
    ),
    "a format that is gone": (TARGET % f"{OK}, template: slack", "targets[0].template: expected one of json, alert"),
    "another API": (TARGET % f"{OK}, template: alertmanager", "targets[0]: expected the address of Alertmanager's API"),
    "a path": (TARGET % "urlFile: ../../token", "targets[0].urlFile: expected the name of a file in the folder"),
    "an absolute path": (TARGET % f"{OK}, caFile: /etc/passwd", "targets[0].caFile: expected the name of a file"),
    "a hidden folder": (TARGET % f"{OK}, tokenFile: ..data", "targets[0].tokenFile: expected the name of a file"),
    "HTTP's own header": (
        TARGET % f"{OK}, header: {{name: Host, file: f}}",
        "targets[0].header.name: expected a header",
    ),
    "a header with more": (TARGET % f"{OK}, header: {{name: 'X: y', file: f}}", "targets[0].header.name: expected"),
    "no kind": (TARGET % f"{OK}, kinds: []", "targets[0].kinds: expected at least one item"),
    "another kind": (TARGET % f"{OK}, kinds: [eviction]", "targets[0].kinds[0]: expected one of evictions, refusals"),
    "too often": (TARGET % f"{OK}, interval: 1s", "targets[0].interval: expected from 10s to 168h, got 1s"),
    "two of a name": (
        f"notify: {{targets: [{{name: t, {OK}}}, {{name: t, {OK}}}]}}",
        "targets: target t appears twice; keep one",
    ),
    "too many": (
        f"notify: {{targets: [{', '.join(f'{{name: t{n}, {OK}}}' for n in range(MAX_TARGETS + 1))}]}}",
        "targets: ",
    ),
    "a cluster that is no name": ("notify: {cluster: 'a b'}", "cluster: expected at most 63 letters"),
    "more than all": ("notify: {limits: {percent: 101}}", "limits.percent: expected 100 or less"),
    "fewer than none": ("notify: {refusals: {above: -1}}", "refusals.above: expected 0 or more"),
}


@pytest.mark.parametrize(("body", "want"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_mistake_is_reported(folder, body, want):
    with pytest.raises(PolicyError) as caught:
        load(folder(body))
    [problem] = caught.value.problems
    assert f"{problem.path}: {problem.message}".startswith(f"notify.{want}")


def test_what_is_right_reaches_the_core(folder):
    rules = load(
        folder(
            "notify:\n  cluster: east\n  refusals: {above: 5, within: 1m}\n  limits: {percent: 80}\n  targets:\n"
            "  - {name: b, url: 'http://h:9093/api/v2/alerts', template: alertmanager, kinds: [idle], interval: 1m}\n"
            "  - {name: a, urlFile: u, header: {name: X-Key, file: k}, caFile: ca.crt, repeat: 1h}\n"
            "  - {name: c, url: 'https://h/', tokenFile: t}\n"
        )
    ).notify
    a, b, c = rules.targets
    assert (rules.cluster, rules.refusals, rules.refusals_within_seconds) == ("east", 5, 60)
    assert rules.limit_share == Fraction(4, 5)
    assert a == NotifyTarget(
        "a", url_file="u", header=SecretHeader("X-Key", "k"), ca_file="ca.crt", repeat_seconds=3600
    )
    assert (b.template, b.kinds, b.interval_seconds) == (NotifyTemplate.ALERTMANAGER, {NotifyKind.IDLE}, 60)
    assert c.header == SecretHeader("Authorization", "t", "Bearer ")


def test_targets_are_part_of_the_hash_and_their_order_is_not(folder):
    one, other = "{name: a, url: 'https://a/'}", "{name: b, url: 'https://b/'}"
    hashes = [
        load(folder(body)).hash
        for body in (
            "",
            "notify: {}",
            f"notify: {{targets: [{one}, {other}]}}",
            f"notify: {{targets: [{other}, {one}]}}",
        )
    ]
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]
