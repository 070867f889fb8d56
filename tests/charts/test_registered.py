"""What the chart registers: the same as `fairgate manifests`, for each policy and mode."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from tests.charts.helm import (
    NAMESPACE,
    POLICIES,
    REGISTRATION,
    RELEASE,
    WEBHOOKS,
    kinds,
    render,
)
from tests.scenarios.serving import FAIRGATE, ROOT
from webhook.kube.ledger.reports import report_crd
from webhook.kube.ledger.team_ledger import team_ledger_crd
from webhook.kube.objects import keys
from webhook.kube.registration.static_files import held_nodes_crd

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]

SELECTORS = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
defaults:
  unknownTeam: preemptible
  unknownGpu: ignore
  deviceAccess: reject
  hostPaths: [/data, /b, /data]
  maximumGracePeriod: 1h30m15s
teams:
  - name: vision
    namespaceSelector:
      matchLabels: {team: vision}
      matchExpressions: [{key: cost.example.org/centre, operator: Exists}]
pools:
  - name: zoo
    nodeSelector: {pool: zoo}
    match:
      podSelector:
        matchLabels: {app.kubernetes.io/name: zoo, app: zoo}
        matchExpressions:
          - {key: stage, operator: NotIn, values: [test, dev, dev]}
          - {key: app, operator: Exists}
          - {key: gpu, operator: DoesNotExist}
  - name: ark
    nodeSelector: {pool: ark}
    match: {podSelector: {matchExpressions: [{key: app, operator: In, values: [b, a]}]}}
---
apiVersion: fairgate.dev/v1alpha1
kind: Policy
resources:
  nvidia.com/gpu: {gpus: 0}
  example.com/gpu: {gpus: "0"}
  example.com/accelerator: {gpus: "0.5"}
  aliyun.com/gpu-count: {gpus: 1}
exempt: {namespaces: [kube-system, monitoring, "ci-*"], operators: false}
workloads:
  kinds:
    - {group: batch, kind: Job, resource: jobs, pods: [{template: spec.template}]}
    - {group: example.com, kind: Model, resource: models, pods: [{template: spec.template}]}
    - {group: example.com, kind: Trainer, resource: trainers, pods: [{template: spec.template}]}
"""


def printed(folder, *flags) -> list[dict]:
    """The output of `fairgate manifests` for the chart's Service; the chart fails open while there is no server."""
    command = [*FAIRGATE, "manifests", "--policy", folder, "--service", f"{NAMESPACE}/{RELEASE}", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = list(yaml.safe_load_all(done.stdout))
    for webhook in (each for configuration in kinds(found, *WEBHOOKS) for each in configuration["webhooks"]):
        webhook["failurePolicy"] = "Ignore"
    return found


def comparable(manifests) -> dict[tuple[str, str], dict]:
    """By kind and name, without helm's labels and order."""
    return {
        (found["kind"], found["metadata"]["name"]): {key: found[key] for key in found if key != "metadata"}
        for found in manifests
    }


@pytest.mark.parametrize("file", [file.relative_to(ROOT) for file in POLICIES], ids=str)
def test_the_registration_is_the_one_of_fairgate_manifests(file):
    want = kinds(printed(file, "--enforce", "enforce"), *REGISTRATION)  # has precedence over the policy's value
    assert comparable(kinds(render("--set-file", f"policy={file}"), *REGISTRATION)) == comparable(want)


def test_so_it_is_for_every_kind_of_selector_and_for_resources_that_count_nothing(tmp_path):
    (tmp_path / "policy.yaml").write_text(SELECTORS)
    want = kinds(printed(tmp_path), *REGISTRATION)
    found = kinds(render("--set-file", f"policy={tmp_path / 'policy.yaml'}"), *REGISTRATION)
    assert comparable(found) == comparable(want)


@pytest.mark.parametrize("flag", ["enforce=off", "enforce=false"])
def test_with_enforcement_off_nothing_is_registered(flag):
    assert not kinds(render("--set", flag), *REGISTRATION)


@pytest.mark.parametrize("mode", ["off", "shadow", "warn", "enforce"])
def test_every_mode_is_the_one_of_fairgate_manifests_and_of_the_commands(mode):
    rendered = render("--set", f"enforce={mode}", "--set-file", f"policy={POLICIES[-1]}")
    want = kinds(printed(POLICIES[-1], "--enforce", mode), *REGISTRATION)
    assert comparable(kinds(rendered, *REGISTRATION)) == comparable(want)
    [deployment] = kinds(rendered, "Deployment")
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        assert f"--enforce={mode}" in container["args"]


def test_trusted_users_are_those_of_fairgate_manifests():
    want = kinds(printed(POLICIES[0], "--trusted-user", "carol", "--trusted-user", "bob"), *REGISTRATION)
    found = kinds(render("--set", "guards.trustedUsers={carol,bob}"), *REGISTRATION)
    assert comparable(found) == comparable(want)


def test_the_definitions_are_those_of_fairgate_manifests_and_stay():
    found = kinds(render(), "CustomResourceDefinition")
    want = {made["metadata"]["name"]: made["spec"] for made in (team_ledger_crd(), report_crd(), held_nodes_crd())}
    assert {each["metadata"]["name"]: each["spec"] for each in found} == want
    assert all(each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for each in found)


def test_viewers_are_the_named_subjects_with_the_role_of_fairgate_manifests():
    want = next(each for each in kinds(printed(POLICIES[0]), "ClusterRole") if each["metadata"]["name"] == keys.VIEWER)
    rendered = render("--set", "viewer.groups={data-science,oidc:ml}")
    [role] = [each for each in kinds(rendered, "ClusterRole") if each["metadata"]["name"] == "fairgate-viewer"]
    assert role["rules"] == want["rules"]
    assert role["metadata"]["labels"].items() >= {"rbac.authorization.k8s.io/aggregate-to-view": "true"}.items()
    [bound] = [each for each in kinds(rendered, "ClusterRoleBinding") if each["roleRef"]["name"] == "fairgate-viewer"]
    assert [subject["name"] for subject in bound["subjects"]] == ["data-science", "oidc:ml"]
    assert "fairgate-viewer" not in {each["metadata"]["name"] for each in kinds(render(), "ClusterRoleBinding")}
    assert "fairgate-viewer" not in {each["metadata"]["name"] for each in render("--set", "viewer.create=false")}
