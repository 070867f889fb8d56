"""The policy of a valid folder."""

import os
from fractions import Fraction

import pytest

from webhook.core.model.amounts import ONE_GPU, UNLIMITED
from webhook.core.model.constraints import Effect, Operator, Requirement, Tier, Toleration
from webhook.core.model.demand import Shape
from webhook.core.model.policy import (
    OPERATOR_NAMESPACES,
    LabelSelector,
    Mode,
    PlacementRules,
    Policy,
    QueueRules,
    UnknownTeam,
    UserKey,
    UserSource,
)
from webhook.core.model.policy_addons import IdleAction, IdleTerms
from webhook.policy.documents import PolicyError, PolicyUnreadable
from webhook.policy.watch import load

FULL = """
teams:
  - name: b
    namespaceSelector: {matchLabels: {x: "1"}, matchExpressions: [{key: y, operator: NotIn, values: [q, p]}]}
    gpus: {guaranteed: 2.5, limit: "20/8"}
    models: {A100: {guaranteed: 1}}
    perPod: {limit: 2}
    perUser: {limit: unlimited}
    weight: 1/3
    onLimit: reject
    onNoRoom: queue
    queueDepth: 0
    idle: {below: 10%, actions: []}
  - {name: a, namespaces: [z, "a-*"]}
defaults:
  onLimit: queue
  unknownTeam: preemptible
  userFrom: [{podLabel: who}, {namespaceAnnotation: owner}]
pools:
  - name: p
    nodeSelector: {disk: "off"}
    affinity: [{key: m, operator: Gt, values: ["75000"]}]
    tolerations: [{operator: Exists}, {key: k, value: v, effect: NoExecute}]
    capabilities: [nvlink]
    teams: [a]
    match: {podSelector: {matchLabels: {app: x}}}
placement: {mode: off, podGroups: prefer, keepWhole: {nodes: 2}}
reclaim:
  {notice: 1m30s, minimumRuntime: 1.5h, budgets: unlimited, protect: [ci, {matchLabels: {a: b}}], order: [age],
  maxEvictionsPerMinute: 9}
queue: {depth: 50, halfLife: 24h, strictAfter: unlimited, gangTimeout: 90s}
topology: {levels: [zone, example.com/rack]}
idle:
  prometheus: {url: "http://prometheus:9090/"}
  series: {job: dcgm, cluster: a}
  below: 3
  for: 30m
  actions: [prefer, report]
  exempt: [ci, {matchLabels: {a: b}}]
resources: {nvidia.com/gpu.shared: {gpus: 1/4}, google.com/tpu: {gpus: 0}}
priorityClasses: {guaranteed: gpu-high}
exempt: {namespaces: [kube-system]}
"""


def test_every_field_is_in_the_core_policy(folder):
    policy = load(folder(FULL))
    a, b = policy.teams
    assert (a.name, a.namespaces, a.gpus.guaranteed, a.gpus.limit) == ("a", ("a-*", "z"), 0, UNLIMITED)
    assert b.namespace_selector == LabelSelector(
        (Requirement("x", Operator.IN, ("1",)), Requirement("y", Operator.NOT_IN, ("p", "q")))
    )
    assert b.gpus.guaranteed == b.gpus.limit == ONE_GPU * 5 // 2
    assert (b.models["A100"].guaranteed, b.models["A100"].limit) == (ONE_GPU, UNLIMITED)
    assert (b.per_pod, b.per_user) == (2 * ONE_GPU, UNLIMITED)
    assert (a.weight, b.weight) == (1, Fraction(1, 3))
    assert [policy.on_limit(team) for team in (a, b)] == ["queue", "reject"]
    assert policy.topology.levels == ("zone", "example.com/rack")
    assert [policy.on_no_room(team) for team in (a, b)] == ["wait", "queue"]
    assert [policy.queue_depth(team) for team in (a, b)] == [50, 0]
    assert policy.queue == QueueRules(50, 86_400, UNLIMITED, gang_timeout_seconds=90)
    assert policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    assert policy.defaults.user_from == (
        UserKey(UserSource.POD_LABEL, "who"),
        UserKey(UserSource.NAMESPACE_ANNOTATION, "owner"),
    )
    (pool,) = policy.pools
    assert pool.node_selector == (("disk", "off"),)
    assert pool.affinity == (Requirement("m", Operator.GT, ("75000",)),)
    assert set(pool.tolerations) == {Toleration(exists=True), Toleration("k", value="v", effect=Effect.NO_EXECUTE)}
    assert (pool.capabilities, pool.teams) == (frozenset({"nvlink"}), frozenset({"a"}))
    assert pool.match == LabelSelector((Requirement("app", Operator.IN, ("x",)),))
    assert policy.placement == PlacementRules(Mode.OFF, pod_groups=Mode.PREFER, keep_whole=2)
    assert policy.idle.source.url == "http://prometheus:9090"
    assert policy.idle.source.series == (("cluster", "a"), ("job", "dcgm"))
    assert [metric.name for metric in policy.idle.source.metrics] == [
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_DEV_GPU_UTIL",
    ]
    assert policy.idle.terms == IdleTerms(3, 1800, frozenset({IdleAction.PREFER, IdleAction.REPORT}))
    assert policy.idle.terms_of(b.idle) == IdleTerms(10, 1800, frozenset())
    assert [policy.on_idle(team.name) for team in (a, b)] == [policy.idle.terms.actions, frozenset()]
    assert (policy.idle.exempts("ci", {}), policy.idle.exempts("x", {"a": "b"})) == (True, True)
    assert not policy.idle.exempts("x", {"a": "c"})
    assert (policy.reclaim.notice_seconds, policy.reclaim.minimum_runtime_seconds) == (90, 5400)
    assert policy.reclaim.protected_namespaces == ("ci",)
    assert policy.reclaim.order == ("age", "gangs", "surplus", "lostWork", "failures", "overShare")
    assert policy.reclaim.evictions_per_minute == 9
    assert policy.reclaim.budget_seconds is UNLIMITED
    assert policy.reclaim.protected_selectors == (LabelSelector((Requirement("a", Operator.IN, ("b",)),)),)
    assert policy.resources["nvidia.com/gpu.shared"] == ONE_GPU // 4
    assert policy.resources["nvidia.com/gpu"] == ONE_GPU
    assert "google.com/tpu" not in policy.resources
    assert policy.priority_classes == {Tier.GUARANTEED: "gpu-high"}
    assert policy.exempt_namespaces == ("kube-system",)


def test_defaults_are_those_of_the_core(folder):
    policy = load(folder(""))
    want = Policy(resources=policy.resources, ignored_resources=policy.ignored_resources, hash=policy.hash)
    assert policy == want


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        ("1g.5gb", (1, 7)),
        ("1g.10gb.me", (1, 7)),
        ("3g.71gb", (3, 7)),
        ("7g.80gb", (7, 7)),
        ("1g.6gb", (1, 4)),
        ("2g.12gb", (2, 4)),
        ("4g.24gb", (4, 4)),
    ],
)
def test_mig_profile_counts_its_compute_slices(folder, profile, want):
    share, whole = want
    assert load(folder("")).resources[f"nvidia.com/mig-{profile}"] * whole == share * ONE_GPU


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        ("1g.5gb", (1, 7)),
        ("1g.5gb.me", (1, 7)),
        ("1g.10gb", (1, 7)),  # one of eight on 80 GB, two of eight on 40
        ("1g.20gb", (1, 4)),
        ("2g.10gb", (2, 7)),
        ("3g.20gb", (1, 2)),
        ("4g.20gb", (4, 7)),
        ("7g.40gb", (1, 1)),
        ("1g.6gb", (1, 4)),
        ("2g.12gb", (1, 2)),
    ],
)
def test_mig_profiles_count_the_larger_of_both_slices_if_the_policy_says_so(folder, profile, want):
    share, whole = want
    policy = load(folder("defaults: {mig: larger}"))
    assert policy.resources[f"nvidia.com/mig-{profile}"] * whole == share * ONE_GPU


def test_hash_depends_on_the_meaning_not_the_text(folder):
    one = load(folder("teams: [{name: a, namespaces: [x, y], gpus: {limit: 2}}, {name: b, namespaces: [z]}]"))
    two = load(
        folder(
            "# a comment\nteams: [{namespaces: [z], name: b}]\n---\n---\n"
            "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nplacement:\n",
            'teams: [{name: a, gpus: {limit: "2.0"}, namespaces: [y, x]}]\ndefaults: {unknownTeam: reject}',
        )
    )
    assert one == two
    assert len(one.hash) == 12


@pytest.mark.parametrize(
    "change",
    [
        ('limit: "20/8"', "limit: 3"),
        ("unknownTeam: preemptible", "unknownTeam: reject"),
        ("notice: 1m30s", "notice: 1m31s"),
        ("{podLabel: who}, {namespaceAnnotation: owner}", "{namespaceAnnotation: owner}, {podLabel: who}"),
        ("gpus: 1/4", "gpus: 1/5"),
        ("weight: 1/3", "weight: 2/3"),
        ("onLimit: queue", "onLimit: reject"),
        ("[zone, example.com/rack]", "[example.com/rack, zone]"),
    ],
    ids=lambda change: change[1],
)
def test_different_policies_have_different_hashes(folder, change):
    before = load(folder(FULL)).hash
    assert load(folder(FULL.replace(*change))).hash != before


def test_only_visible_yaml_files_of_the_folder_itself_count(folder, tmp_path):
    path = folder("teams: [{name: a, namespaces: [a]}]")
    (tmp_path / ".hidden.yaml").write_text("{")
    (tmp_path / "README.md").write_text("{")
    (tmp_path / "below.yaml").mkdir()
    (tmp_path / "below.yaml" / "x.yaml").write_text("{")
    (tmp_path / "b.yml").write_text("apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nexempt: {namespaces: [x]}")
    policy = load(path)
    assert ([team.name for team in policy.teams], policy.exempt_namespaces) == (["a"], ("x",))


def test_single_file_is_accepted(folder):
    assert load(folder("teams: [{name: a, namespaces: [a]}]") / "a.yaml").teams[0].name == "a"


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (None, "no policy files: expected at least one *.yaml or *.yml here"),
        (b"# nothing\n---\n---\n", "no policy in these files: every document is empty"),
    ],
    ids=["no file", "only empty documents"],
)
def test_folder_of_empty_documents_is_not_a_policy(tmp_path, content, want):
    if content is not None:
        (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(PolicyError) as caught:
        load(tmp_path)
    assert [str(problem) for problem in caught.value.problems] == [f"{tmp_path}: {want}"]


def test_missing_folder_is_unreadable(tmp_path):
    with pytest.raises(PolicyUnreadable, match=r"cannot read .*/nowhere: No such file or directory"):
        load(tmp_path / "nowhere")


def test_dangling_symlink_is_an_error(folder, tmp_path):
    (tmp_path / "b.yaml").symlink_to("gone")
    with pytest.raises(PolicyUnreadable, match=r"b\.yaml: No such file"):
        load(folder(""))


def test_fifo_does_not_block_the_reader(folder, tmp_path):
    os.mkfifo(tmp_path / "b.yaml")
    with pytest.raises(PolicyUnreadable, match=r"b\.yaml: not a regular file"):
        load(folder(""))


def test_expected_pods_are_shapes_with_weights(folder):
    demand_mix = """
placement:
  demandMix:
    - {gpus: 8, cpu: 96, memory: 768Gi, weight: 2}
    - {gpus: 0.25, cpu: 500m}
    - {gpus: 2, cpu: 1.5, memory: 512Mi}
"""
    assert load(folder(demand_mix)).placement.demand_mix == (
        (Shape(1, ONE_GPU // 4, ONE_GPU, 500), 1),
        (Shape(2, ONE_GPU, ONE_GPU, 1500, 512 << 20), 1),
        (Shape(8, ONE_GPU, ONE_GPU, 96_000, 768 << 30), 2),
    )


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("{gpus: 2.5}", "expected whole GPUs or a share of one, got 2.5"),
        ("{gpus: 0}", "expected whole GPUs or a share of one, got 0"),
        ("{gpus: 1, cpu: 1Gi}", "expected cpu such as 8"),
        ("{gpus: 1, memory: 1.5Gi}", "expected memory such as 64Gi"),
    ],
)
def test_an_impossible_pod_size_is_refused(folder, field, problem):
    with pytest.raises(PolicyError, match=problem):
        load(folder(f"placement: {{demandMix: [{field}]}}"))


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ("", OPERATOR_NAMESPACES),
        ("exempt: {operators: false}", ()),
        ("exempt: {namespaces: [ci]}", OPERATOR_NAMESPACES),
        ("teams: [{name: a, namespaces: [gpu-operator], gpus: {limit: 1}}]", OPERATOR_NAMESPACES[1:]),
    ],
    ids=["by default", "not", "beside others", "unless a team owns one"],
)
def test_the_namespaces_of_device_operators_are_exempt(folder, more, want):
    policy = load(folder(f"{more}\n"))
    assert policy.operator_namespaces == want
    assert set(want) <= set(policy.exempt)
