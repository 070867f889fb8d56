"""Every problem of a policy, with its message."""

import pytest

from tests.policy.idle_problems import IDLE_PROBLEMS
from tests.policy.queue_problems import QUEUE_PROBLEMS, TEAM
from webhook.policy.documents import PolicyError
from webhook.policy.watch import load

POOL = "pools: [{name: p%s}]"

ONE_FILE = QUEUE_PROBLEMS | {
    "a path of nodes that has another spelling": (
        "defaults: {hostPaths: [/data, /dev/../data]}",
        "3: defaults.hostPaths[1]: expected at most 4096 characters of an absolute path such as /data, without . and"
        ' .. parts; got "/dev/../data"',
    ),
    "a field misspelt": (TEAM % ", gpu: 3", '3: teams[0].gpu: unknown field; did you mean "gpus"?'),
    "a field of another world": (
        "placement: {zzz: 1}",
        "3: placement.zzz: unknown field; known here: mode, podGroups, keepWhole, demandMix",
    ),
    "replicas of another resource": (
        "resources: {nvidia.com/gpu.shared: {perReplica: true}}",
        "3: resources[nvidia.com/gpu.shared].perReplica: only nvidia.com/gpu is counted by replicas; weigh replicas"
        " under a name of their own by perGpu",
    ),
    "replicas and an amount": (
        "resources: {nvidia.com/gpu: {perReplica: true, gpus: 1}}",
        "3: resources[nvidia.com/gpu]: expected exactly one of gpus (of one piece), perGpu (pieces of one GPU) and"
        " perReplica",
    ),
    "replicas that do not count": (
        "resources: {nvidia.com/gpu: {perReplica: false}}",
        "3: resources[nvidia.com/gpu].perReplica: expected true; got the word false",
    ),
    "a section misspelt": ("pool: []", '3: pool: unknown field; did you mean "pools"?'),
    "a field in the wrong case": (TEAM % ", perpod: {}", '3: teams[0].perpod: unknown field; did you mean "perPod"?'),
    "a list where a mapping belongs": ("defaults: []", "3: defaults: expected a mapping, got a list"),
    "a mapping where a list belongs": ("teams: {name: a}", "3: teams: expected a list, got a mapping"),
    "a team without name": (
        "teams: [{namespaces: [a]}]",
        "3: teams[0].name: required: Unique name; the value of the label fairgate.dev/team on the team's pods",
    ),
    "a team without namespaces": (
        "teams: [{name: a}]",
        "3: teams[0].namespaces: a team needs namespaces or a namespaceSelector; without them no pod can belong to it",
    ),
    "a reserved team name": (
        "teams: [{name: unassigned, namespaces: [a]}]",
        '3: teams[0].name: "unassigned" is reserved for namespaces without a team; choose another name',
    ),
    "a team name that no label holds": (
        "teams: [{name: 'a b', namespaces: [a]}]",
        "3: teams[0].name: expected at most 63 letters, digits, -, _ and ., with a letter or digit at both ends;"
        ' got "a b"',
    ),
    "a number as name": (
        "teams: [{name: 12, namespaces: [a]}]",
        '3: teams[0].name: expected text, got the number 12; quote it: "12"',
    ),
    "a truth value as label": (
        POOL % ", nodeSelector: {gpu: true}",
        '3: pools[0].nodeSelector.gpu: expected text, got the word true; quote it: "true"',
    ),
    "guaranteed above limit": (
        TEAM % ", gpus: {guaranteed: 5, limit: 4}",
        "3: teams[0].gpus: guaranteed 5 is more than limit 4; raise the limit or lower the guaranteed share",
    ),
    "guaranteed above limit of a model": (
        TEAM % ", models: {A100: {guaranteed: 1/2, limit: 0.25}}",
        "3: teams[0].models.A100: guaranteed 0.5 is more than limit 0.25; raise the limit or lower the guaranteed"
        " share",
    ),
    "models that guarantee more than the team's limit": (
        TEAM % ", gpus: {limit: 4}, models: {A: {guaranteed: 3}, B: {guaranteed: 2}}",
        "3: teams[0].models: models guarantee 5 together, but the team's limit is 4; raise it or lower them",
    ),
    "a negative amount": (
        TEAM % ", gpus: {guaranteed: -1}",
        "3: teams[0].gpus.guaranteed: a number of GPUs cannot be negative, got -1",
    ),
    "not a number": (
        TEAM % ", gpus: {limit: .nan}",
        '3: teams[0].gpus.limit: expected unlimited or GPUs such as 8, "2.5" or "1/7", got the number nan',
    ),
    "infinity": (
        TEAM % ", gpus: {guaranteed: .inf}",
        '3: teams[0].gpus.guaranteed: expected GPUs such as 8, "2.5" or "1/7", got the number inf',
    ),
    "a truth value as amount": (
        TEAM % ", gpus: {guaranteed: true}",
        '3: teams[0].gpus.guaranteed: expected GPUs such as 8, "2.5" or "1/7", got the word true',
    ),
    "an amount with an exponent that takes hours to write out": (
        TEAM % ', gpus: {limit: "1e999999999"}',
        '3: teams[0].gpus.limit: expected unlimited or GPUs such as 8, "2.5" or "1/7", got "1e999999999"',
    ),
    "an amount that no world has": (
        TEAM % ", gpus: {limit: 1000000001}",
        "3: teams[0].gpus.limit: more than 1,000,000,000 GPUs; write unlimited for no limit",
    ),
    "an amount that cannot be counted": (
        TEAM % ", gpus: {limit: 1/11}",
        "3: teams[0].gpus.limit: 1/11 GPUs cannot be counted exactly; use thousandths or shares from 1/2 to 1/8",
    ),
    "a limit left empty": (
        TEAM % ", perPod: {limit: }",
        "3: teams[0].perPod.limit: has no value; write one, or leave the field out",
    ),
    "an unknown mode": (
        "placement: {mode: requir}",
        '3: placement.mode: expected one of auto, require, prefer, off; got "requir"; did you mean "require"?',
    ),
    "negative whole nodes": (
        "placement: {keepWhole: {nodes: -1}}",
        "3: placement.keepWhole.nodes: expected 0 or more, got the number -1",
    ),
    "Gt with a word": (
        POOL % ", affinity: [{key: a, operator: Gt, values: [x]}]",
        '3: pools[0].affinity[0]: operator Gt needs exactly one integer value, such as ["75000"]',
    ),
    "Lt with two values": (
        POOL % ', affinity: [{key: a, operator: Lt, values: ["1", "2"]}]',
        '3: pools[0].affinity[0]: operator Lt needs exactly one integer value, such as ["75000"]',
    ),
    "In without values": (
        POOL % ", affinity: [{key: a, operator: In}]",
        "3: pools[0].affinity[0]: operator In needs at least one value",
    ),
    "Exists with values": (
        POOL % ", affinity: [{key: a, operator: Exists, values: [x]}]",
        "3: pools[0].affinity[0]: operator Exists takes no values; use In to compare values",
    ),
    "Gt in a label selector": (
        'teams: [{name: a, namespaceSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]',
        "3: teams[0].namespaceSelector.matchExpressions[0]: operator Gt is for node affinity only; "
        "label selectors support In, NotIn, Exists, DoesNotExist",
    ),
    "an empty selector": (
        POOL % ", match: {podSelector: {}}",
        "3: pools[0].match.podSelector: an empty selector would select everything; give at least one label",
    ),
    "a bad label key": (
        POOL % ", nodeSelector: {a/b/c: x}",
        '3: pools[0].nodeSelector[a/b/c]: expected a key such as nvidia.com/gpu.product, got "a/b/c": bad prefix',
    ),
    "a bad label value": (
        POOL % ", nodeSelector: {a: -x}",
        "3: pools[0].nodeSelector.a: expected at most 63 letters, digits, -, _ and ., with a letter or digit at both"
        ' ends; got "-x"',
    ),
    "an unknown taint effect": (
        POOL % ", tolerations: [{key: a, effect: NoExec}]",
        "3: pools[0].tolerations[0].effect: expected one of NoSchedule, PreferNoSchedule, NoExecute;"
        ' got "NoExec"; did you mean "NoExecute"?',
    ),
    "a toleration that exists and compares": (
        POOL % ", tolerations: [{key: a, operator: Exists, value: x}]",
        '3: pools[0].tolerations[0]: operator Exists takes no value; remove value "x" or use Equal',
    ),
    "a toleration without key": (
        POOL % ", tolerations: [{value: x}]",
        "3: pools[0].tolerations[0]: operator Equal needs a key; use Exists to tolerate every taint",
    ),
    "a pool without teams": (
        POOL % ", teams: []",
        "3: pools[0].teams: expected at least one item; otherwise leave the field out",
    ),
    "a pool for teams left empty, which is not every team": (
        POOL % ", teams: ",
        "3: pools[0].teams: has no value; write one, or leave the field out",
    ),
    "a pool for an unknown team": (
        f"{TEAM % ''}\n{POOL % ', teams: [aa]'}",
        '4: pools[0].teams[0]: unknown team: expected a; got "aa"; did you mean "a"?',
    ),
    "a namespace in upper case": (
        "teams: [{name: a, namespaces: [A]}]",
        "3: teams[0].namespaces[0]: expected at most 63 lower-case letters, digits and -, with a letter or digit at"
        ' both ends; got "A"',
    ),
    "a glob of another kind": (
        "teams: [{name: a, namespaces: ['a[b]*']}]",
        '3: teams[0].namespaces[0]: expected at most 253 lower-case letters, digits, -, * and ?; got "a[b]*"',
    ),
    "a namespace of two teams": (
        "teams:\n- {name: a, namespaces: [x]}\n- {name: b, namespaces: [y, x]}",
        '5: teams[1].namespaces[1]: namespace "x" already belongs to team "a" at FILE:4; keep it in one team',
    ),
    "a duration in days": (
        "reclaim: {notice: 7d}",
        '3: reclaim.notice: expected a duration such as 30s, 10m or 1h30m, got "7d"',
    ),
    "a time for budgets that is none": (
        "reclaim: {budgets: never}",
        '3: reclaim.budgets: expected unlimited or a duration such as 30s, 10m or 1h30m, got "never"',
    ),
    "a duration without unit": (
        "reclaim: {notice: 30}",
        "3: reclaim.notice: expected a duration such as 30s, 10m or 1h30m, got the number 30",
    ),
    "a duration finer than seconds": (
        "reclaim: {minimumRuntime: 0.5s}",
        '3: reclaim.minimumRuntime: expected whole seconds, got "0.5s"',
    ),
    "a grace period that every pod exceeds": (
        "defaults: {maximumGracePeriod: 20s}",
        "3: defaults.maximumGracePeriod: expected at least 30s, the default of pods, and at most 24h, got 20s",
    ),
    "a grace period of days": (
        "defaults: {maximumGracePeriod: 48h}",
        "3: defaults.maximumGracePeriod: expected at least 30s, the default of pods, and at most 24h, got 172800s",
    ),
    "a window that is no time of day": (
        'defragment: {window: "2-5"}',
        '3: defragment.window: expected a time of day such as 02:00-05:00, got "2-5"',
    ),
    "a window without length": (
        'defragment: {window: "02:00-02:00"}',
        '3: defragment.window: expected a time of day such as 02:00-05:00, got "02:00-02:00"',
    ),
    "a window by a number, as YAML reads some times": (
        "defragment: {window: 120}",
        "3: defragment.window: expected a time of day such as 02:00-05:00, got the number 120",
    ),
    "a time zone of no place": (
        "defragment: {timeZone: Europe/Atlantis}",
        '3: defragment.timeZone: expected a time zone such as Europe/Berlin, got "Europe/Atlantis"',
    ),
    "a time zone that is a path": (
        "defragment: {timeZone: ../../etc/passwd}",
        '3: defragment.timeZone: expected a time zone such as Europe/Berlin, got "../../etc/passwd"',
    ),
    "protection of a number": (
        "reclaim: {protect: [1]}",
        '3: reclaim.protect[0]: expected text, got the number 1; quote it: "1"',
    ),
    "protection by a misspelt selector": (
        "reclaim: {protect: [{matchLabel: {a: b}}]}",
        '3: reclaim.protect[0].matchLabel: unknown field; did you mean "matchLabels"?',
    ),
    "an unknown order of victims": (
        "reclaim: {order: [age, gang]}",
        "3: reclaim.order[1]: expected one of gangs, surplus, lostWork, failures, overShare, age; "
        'got "gang"; did you mean "gangs"?',
    ),
    "an eviction budget of zero": (
        "reclaim: {maxEvictionsPerMinute: 0}",
        "3: reclaim.maxEvictionsPerMinute: expected 1 or more, got the number 0",
    ),
    "a resource that is no GPU": (
        "resources: {cpu: {gpus: 1}}",
        '3: resources.cpu: expected an extended resource such as nvidia.com/gpu, got "cpu"',
    ),
    "resources as a list": ("resources: []", "3: resources: expected a mapping, got a list"),
    "a user read from two places in one item": (
        "defaults: {userFrom: [{podLabel: a, podAnnotation: b}]}",
        "3: defaults.userFrom[0]: expected exactly one of namespaceAnnotation, namespaceLabel, podAnnotation,"
        " podLabel; write each as its own list item",
    ),
    "a user read from nowhere": (
        "defaults: {userFrom: [{podLabel: }]}",
        "3: defaults.userFrom[0].podLabel: has no value; write one, or leave the field out",
    ),
    "a priority class in upper case": (
        "priorityClasses: {guaranteed: High}",
        '3: priorityClasses.guaranteed: expected at most 253 lower-case letters, digits, - and .; got "High"',
    ),
    "a repeated field": (
        "teams:\n- name: a\n  namespaces: [a]\n  name: b",
        "6: teams[0].name: appears twice, first on line 4; keep one",
    ),
    "a key that is no text": ("1: 2", '3: a key must be text; quote it: "1"'),
    "a merge key": (
        "placement: {<<: {mode: off}}",
        "3: placement: merge keys (<<) are not part of YAML 1.2; write the fields out",
    ),
    "a tag": (
        "placement: {mode: !env MODE}",
        "3: placement.mode: tag !env is not supported; write plain text or a number",
    ),
    "a number that is none": (
        "placement: {keepWhole: {nodes: !!int x}}",
        '3: placement.keepWhole.nodes: expected a number, got "x"',
    ),
    "an alias of its own parent": (
        "defaults: &d {userFrom: [*d]}",
        "3: defaults.userFrom[0]: an alias of a part that contains it; write it out",
    ),
    "invalid YAML": (
        "teams:\n- name: a\n  namespaces: [a",
        "5: not valid YAML: did not find expected ',' or ']' while parsing a flow sequence",
    ),
    "an unknown alias": ("teams: *all", "3: not valid YAML: found undefined alias"),
}


ALL = IDLE_PROBLEMS | ONE_FILE


@pytest.mark.parametrize(("body", "want"), ALL.values(), ids=ALL.keys())
def test_problem_has_its_place(folder, body, want):
    path = folder(body)
    with pytest.raises(PolicyError) as caught:
        load(path)
    reported = [str(problem).replace(f"{path}/a.yaml", "FILE") for problem in caught.value.problems]
    assert f"FILE:{want}" in reported


WHOLE_FILE = {
    "not UTF-8": (b"# ok\n# caf\xe9\n", ":2: not UTF-8 text (byte 0xe9); save the file as UTF-8"),
    "a control character": (b"# ok\nkind: \x07", ":2: not valid YAML: control characters are not allowed"),
    "too big": (b"#" * 1024 * 1024 + b"#", ": larger than 1 MiB, which is more than a ConfigMap holds; split it"),
    "flow lists nested deeper than C stacks": (b"[" * 900_000, ":1: nested more than 32 levels deep"),
    "block lists nested deeper than C stacks": (b"- " * 400_000, ":1: nested more than 32 levels deep"),
    "a list": (b"- 1", ":1: expected a mapping with apiVersion and kind, got a list"),
    "a word": (b"hello", ':1: expected a mapping with apiVersion and kind, got "hello"'),
    "a ConfigMap": (b"apiVersion: v1\nkind: Policy", ':1: apiVersion: expected fairgate.dev/v1alpha1; got "v1"'),
    "another kind": (b"apiVersion: fairgate.dev/v1alpha1\nkind: Polity", ':2: kind: expected Policy; got "Polity";'),
    "no kind": (b"apiVersion: fairgate.dev/v1alpha1", ":1: kind: required; write kind: Policy"),
    "billions of values by aliases": (
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 10)) for n in range(ord("b"), ord("l"))),
        "more than 100,000 values, aliases included; split the file",
    ),
}


@pytest.mark.parametrize(("content", "want"), WHOLE_FILE.values(), ids=WHOLE_FILE.keys())
def test_file_that_is_not_a_policy_is_reported(folder, content, want):
    with pytest.raises(PolicyError) as caught:
        load(folder(odd=content))
    assert any(want in str(problem) for problem in caught.value.problems)


def test_every_problem_of_every_file_is_reported_at_once_in_order(folder):
    path = folder(
        "teams:\n- {name: a, namespaces: [a], gpu: 1}\nplacement: {mode: never}\n---\nkind: Policy",
        "pools: [{name: p, affinity: [{key: a, operator: In}, {key: '!', operator: Exists}]}]",
        "teams: [",
    )
    with pytest.raises(PolicyError) as caught:
        load(path)
    places = [(problem.file.removeprefix(f"{path}/"), problem.line, problem.path) for problem in caught.value.problems]
    assert places == [
        ("a.yaml", 4, "teams[0].gpu"),
        ("a.yaml", 5, "placement.mode"),
        ("a.yaml", 7, "apiVersion"),
        ("b.yaml", 3, "pools[0].affinity[0]"),
        ("b.yaml", 3, "pools[0].affinity[1].key"),
        ("c.yaml", 3, ""),
    ]
