"""What helm makes of the chart: each option has its effect, and invalid values are refused."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.charts.helm import (
    CHART,
    CI_VALUES,
    POLICIES,
    REGISTRATION,
    WEBHOOKS,
    WITH_UNINSTALL,
    HelmError,
    helm,
    kinds,
    render,
)
from tests.scenarios.serving import ROOT
from webhook import __version__
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects.keys import READER
from webhook.kube.registration.static_files import NOTEBOOKS

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]


def test_the_policy_may_come_as_text_as_one_document_or_as_files(tmp_path):
    sample = (ROOT / "policies" / "examples" / "two-teams.yaml").read_text()
    document = yaml.safe_load(sample)
    found = []
    for policy in (sample, document, {"a.yaml": document}, {"a.yaml": sample}):
        (tmp_path / "values.yaml").write_text(yaml.safe_dump({"policy": policy}))
        rendered = render("-f", tmp_path / "values.yaml")
        [files] = [made["data"] for made in kinds(rendered, "ConfigMap")]
        assert [yaml.safe_load(text) for text in files.values()] == [document]
        found.append(kinds(rendered, *REGISTRATION))
    assert found == [found[0]] * 4


def test_without_a_policy_the_one_that_refuses_no_pod_is_rendered():
    [files] = [made["data"] for made in kinds(render(), "ConfigMap")]
    assert yaml.safe_load(files["policy.yaml"])["defaults"] == {"unknownTeam": "preemptible"}


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"enforce": "on"}, "enforce"),
        ({"replicas": 3}, "replicas"),
        ({"replicaCount": 0}, "replicaCount"),
        ({"policy": ["a"]}, "policy"),
        ({"policy": "teams: ["}, "policy"),
        ({"certs": {"lifetime": "90 days"}}, "lifetime"),
        ({"image": {"registry": "example.org"}}, "registry"),
        ({"image": {"digest": "0123"}}, "digest"),
        ({"service": {"port": 70000}}, "port"),
        ({"policyCheck": {"timeoutSeconds": 1}}, "timeoutSeconds"),
        ({"metrics": {"prometheusRule": {"runbookBaseUrl": "docs"}}}, "runbookBaseUrl"),
        ({"evictor": {"enabled": "yes"}}, "enabled"),
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused_by_name(values, want, tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError, match=want):
        render("-f", tmp_path / "values.yaml")


def test_before_anything_changes_the_policy_of_the_release_is_checked():
    flags = ("--set-file", f"policy={POLICIES[-1]}", "--set", "image.tag=v1,imagePullSecrets[0].name=pull")
    [job] = kinds(render(*flags, with_hooks=True), "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"] == ["policy", "check", container["volumeMounts"][0]["mountPath"]]
    assert container["image"] == "fairgate/fairgate:v1"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    named = pod["volumes"][0]["configMap"]["name"]
    files = {made["metadata"]["name"]: made["data"] for made in kinds(render(*flags, with_hooks=True), "ConfigMap")}
    assert files[named] == files["fairgate-policy"]


def test_the_pods_of_hooks_are_not_those_of_the_service():
    rendered = render(*WITH_UNINSTALL, with_hooks=True)
    jobs, [service] = kinds(rendered, "Job"), kinds(rendered, "Service")
    assert len(jobs) == 2
    for job in jobs:
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert not service["spec"]["selector"].items() <= labels.items()


def labels_of(found):
    """Every label and selector of an object and of its pods."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if key in {"labels", "matchLabels", "selector"} and isinstance(value, dict):
            yield from ((name, text) for name, text in value.items() if isinstance(text, str))
        yield from labels_of(value)
    for each in found if isinstance(found, list) else ():
        yield from labels_of(each)


@pytest.mark.parametrize("option", ["fullnameOverride", "nameOverride"])
def test_the_longest_names_give_names_and_labels_that_the_api_server_takes(option):
    flags = ("--set", f"{option}={'x' * 63}", "--set", "page.enabled=true", *WITH_UNINSTALL)
    rendered = render(*flags, with_hooks=True)
    named = kinds(rendered, "Job", "Deployment", "Service")
    names = {found["metadata"]["name"] for found in named}
    assert len(names) >= 4
    assert {name for name in names if len(name) > 63 or name.endswith("-")} == set()
    found = list(labels_of(rendered))
    assert {label for label in found if len(label[1]) > 63} == set()
    own, hooks = (kinds(rendered, kind) for kind in ("Deployment", "Job"))
    pods = {str(each["spec"]["template"]["metadata"]["labels"]) for each in (*own, *hooks)}
    assert len(pods) == len(own) + len(hooks), "what is cut off still tells them apart"


def test_a_custom_policy_is_checked_where_it_is():
    rendered = render("--set", "existingPolicyConfigMap=ours", with_hooks=True)
    [job] = kinds(rendered, "Job")
    assert job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == "ours"
    assert not [made for made in kinds(rendered, "ConfigMap") if "check" in made["metadata"]["name"]]


def test_the_check_can_be_left_out():
    assert not kinds(render("--set", "policyCheck.enabled=false", with_hooks=True), "Job")


@pytest.mark.parametrize(
    ("base", "key", "want"),
    [
        ("", "runbook", "docs/tasks/runbooks.md#"),
        ("https://docs.example.org/runbooks", "runbook_url", "https://docs.example.org/runbooks#"),
    ],
)
def test_runbooks_are_where_the_reader_has_them(base, key, want):
    flags = ("--set", "metrics.prometheusRule.enabled=true", "--set", f"metrics.prometheusRule.runbookBaseUrl={base}")
    [rule] = kinds(render(*flags), "PrometheusRule")
    alerts = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert alerts
    assert all(each["annotations"][key] == f"{want}{each['alert'].lower()}" for each in alerts)


def test_without_an_evictor_no_alert_reports_its_absence():
    flags = ("--set", "metrics.prometheusRule.enabled=true")
    for is_enabled in (True, False):
        [rule] = kinds(render(*flags, "--set", f"evictor.enabled={json.dumps(is_enabled)}"), "PrometheusRule")
        named = {each["alert"] for group in rule["spec"]["groups"] for each in group["rules"]}
        assert ("FairgateEvictorAbsent" in named) is is_enabled


@pytest.mark.parametrize("values", CI_VALUES, ids=lambda path: path.stem)
def test_helm_lints_every_set_of_values(values):
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "-f", values)


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        ([], f"fairgate/fairgate:{__version__}"),
        (["image.repository=example.org/f", "image.tag=v1"], "example.org/f:v1"),
        (["image.tag=v1", f"image.digest=sha256:{'0' * 64}"], f"fairgate/fairgate@sha256:{'0' * 64}"),
    ],
)
def test_the_image_is_named_by_its_tag_or_its_digest(flags, want):
    [deployment] = kinds(render(*(part for flag in flags for part in ("--set", flag))), "Deployment")
    assert {each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]} == {want}


def test_the_prometheus_objects_name_existing_ports_secrets_and_rules():
    rendered = render("-f", CHART / "ci" / "monitoring-values.yaml")
    [monitor] = kinds(rendered, "ServiceMonitor")
    [service] = kinds(rendered, "Service")
    [deployment] = kinds(rendered, "Deployment")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == {
        each["name"] for each in service["spec"]["ports"]
    }
    mounted = {volume["secret"]["secretName"] for volume in deployment["spec"]["template"]["spec"]["volumes"][1:]}
    assert monitor["spec"]["endpoints"][0]["tlsConfig"]["ca"]["secret"]["name"] in mounted
    [rule] = kinds(rendered, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    [dashboard] = [made for made in kinds(rendered, "ConfigMap") if "fairgate.json" in made["data"]]
    assert json.loads(dashboard["data"]["fairgate.json"]) == json.loads(
        (CHART / "files" / "dashboard.json").read_text()
    )


def test_only_named_clients_reach_the_webhooks_with_a_certificate():
    block = "networkPolicy.webhooksFrom[0].ipBlock.cidr=10.0.0.0/24"
    rendered = render("--set", block, "--set", "server.clientCA=callers")
    [policy] = kinds(rendered, "NetworkPolicy")
    [https] = [each for each in policy["spec"]["ingress"] if each["ports"][0]["port"] == "https"]
    assert https["from"] == [{"ipBlock": {"cidr": "10.0.0.0/24"}}]
    [deployment] = kinds(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    server = pod["containers"][0]
    [volume] = [each for each in pod["volumes"] if each.get("configMap", {}).get("name") == "callers"]
    [mount] = [each for each in server["volumeMounts"] if each["name"] == volume["name"]]
    assert f"--client-ca={mount['mountPath']}/ca.crt" in server["args"]


def test_the_evictor_reaches_prometheus_with_its_secret_and_stops_notebooks_only_where_that_is_set():
    plain, options = render(), ("prometheusPorts={9091}", "secretName=token", "stopNotebooks=true")
    rendered = render(*(word for option in options for word in ("--set", f"evictor.idle.{option}")))

    def egress(found):
        (policy,) = kinds(found, "NetworkPolicy")
        return [(port["port"], port["protocol"]) for rule in policy["spec"]["egress"] for port in rule["ports"]]

    assert set(egress(rendered)) - set(egress(plain)) == {(9091, "TCP"), (53, "UDP"), (53, "TCP")}
    (deployment,) = kinds(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == "token"]
    server, evictor = ([mount["name"] for mount in each["volumeMounts"]] for each in pod["containers"])
    assert (volume["name"] in evictor, volume["name"] in server) == (True, False)

    def rules(found):
        roles = [each for each in kinds(found, "ClusterRole") if each["metadata"]["name"].endswith("-evictor")]
        return [rule for role in roles for rule in role["rules"]]

    assert (NOTEBOOKS in rules(rendered), NOTEBOOKS in rules(plain)) == (True, False)


def test_the_service_leads_to_the_ports_of_the_containers():
    rendered = render()
    [service] = kinds(rendered, "Service")
    [deployment] = kinds(rendered, "Deployment")
    containers = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for made in containers for port in made["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports.keys()
    listening = {argument for made in containers for argument in made["args"] if argument.startswith("--listen")}
    assert listening == {f"--listen=:{port}" for port in ports.values()}
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def pod_specs(rendered):
    return [each["spec"]["template"]["spec"] for each in kinds(rendered, "Deployment", "StatefulSet", "Job")]


@pytest.mark.parametrize("history", ["true", "false"])
def test_on_openshift_no_pod_names_its_user(history):
    """There a namespace has a range of users, from which the platform takes one."""
    flags = ("-f", CHART / "ci" / "openshift-values.yaml", "--set", f"page.enabled=true,history.enabled={history}")
    specs = pod_specs(render(*flags, *WITH_UNINSTALL, with_hooks=True))
    contexts = [spec["securityContext"] for spec in specs]
    contexts += [each.get("securityContext", {}) for spec in specs for each in spec["containers"]]
    assert len(specs) == 4
    assert {key for each in contexts for key in each}.isdisjoint({"runAsUser", "runAsGroup", "fsGroup"})
    assert all(spec["securityContext"]["runAsNonRoot"] for spec in specs)


def test_on_the_host_network_servers_listen_on_the_ports_given_and_make_room_for_their_successors():
    rendered = render("-f", CHART / "ci" / "host-network-values.yaml")
    [deployment] = kinds(rendered, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    ports = [port["containerPort"] for made in spec["containers"] for port in made["ports"]]
    assert ports == [10260, 10261]
    for port, made in zip(ports, spec["containers"], strict=True):
        assert f"--listen=:{port}" in made["args"]
    assert "hostNetwork" not in pod_specs(render())[0]


@pytest.mark.parametrize("flags", [(), ("--set", "certManager.enabled=true")], ids=["own CA", "cert-manager"])
def test_the_webhooks_have_the_annotations_given(flags):
    own = "cert-manager.io/inject-ca-from"
    found = kinds(render("-f", CHART / "ci" / "host-network-values.yaml", *flags), *WEBHOOKS)
    assert len(found) == 2
    for each in found:
        annotations = each["metadata"]["annotations"]
        assert annotations["admissions.enforcer/disabled"] == "true"
        assert (own in annotations) is bool(flags)
    assert all("annotations" not in each["metadata"] for each in kinds(render(), *WEBHOOKS))


def test_messages_get_their_secrets_and_their_ports():
    rendered = render("--set", "notify.secretName=people", "--set", "notify.ports={443,9093}")
    [deployment] = kinds(rendered, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    [volume] = [each for each in pod["volumes"] if each["name"] == "notify"]
    assert volume["secret"] == {"secretName": "people", "optional": True}
    for container in pod["containers"]:
        [mount] = [each for each in container["volumeMounts"] if each["name"] == "notify"]
        assert mount["readOnly"]
        assert f"--notify-secrets={mount['mountPath']}" in container["args"]
    [policy] = kinds(rendered, "NetworkPolicy")
    ports = [(each["port"], each["protocol"]) for each in policy["spec"]["egress"][0]["ports"]]
    assert ports == [(443, "TCP"), (6443, "TCP"), (9093, "TCP"), (53, "UDP"), (53, "TCP")]
    assert kinds(rendered, "Role", "ClusterRole") == kinds(render(), "Role", "ClusterRole")
    assert "notify" not in yaml.safe_dump_all(kinds(render(), "Deployment", "NetworkPolicy"))


def test_with_a_history_each_server_keeps_a_volume_of_its_own():
    rendered = render("-f", CHART / "ci" / "history-values.yaml")
    [servers] = kinds(rendered, "StatefulSet")
    assert not kinds(rendered, "Deployment")
    [claim] = servers["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    server = servers["spec"]["template"]["spec"]["containers"][0]
    [mount] = [each for each in server["volumeMounts"] if each["name"] == claim["metadata"]["name"]]
    flags = dict(argument.split("=", 1) for argument in server["args"] if argument.startswith("--history"))
    assert flags == {
        "--history": f"{mount['mountPath']}/history.db",
        "--history-days": "30",
        "--history-megabytes": "256",
    }
    [service] = kinds(rendered, "Service")
    assert servers["spec"]["serviceName"] == service["metadata"]["name"]
    assert not kinds(render(), "StatefulSet")


def test_only_named_groups_may_request_a_token_that_reads_usage():
    rendered = render("-f", CHART / "ci" / "history-values.yaml")
    [account] = [each for each in kinds(rendered, "ServiceAccount") if each["metadata"]["name"] == READER]
    assert account["automountServiceAccountToken"] is False
    [role] = [each for each in kinds(rendered, "Role") if each["metadata"]["name"] == READER]
    assert role["rules"][0] == {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [READER],
        "verbs": ["create"],
    }
    [bound] = [each for each in kinds(rendered, "RoleBinding") if each["roleRef"]["name"] == READER]
    assert [(each["kind"], each["name"]) for each in bound["subjects"]] == [("Group", "finance")]
    assert READER not in {each["metadata"]["name"] for each in render()}


def test_the_page_may_list_the_workloads_that_count_failures_and_change_none():
    rendered = render("--set", "page.enabled=true")
    [role] = [each for each in kinds(rendered, "ClusterRole") if each["metadata"]["name"] == "fairgate-page"]
    granted = {
        (group, name): rule["verbs"]
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    counting = [(row.kind.group, row.kind.resource) for row in BUILT_IN if row.failures is not None]
    assert [granted.get(each) for each in counting] == [["list"]] * len(counting)


def test_the_page_may_ask_the_servers_for_usage_only_where_they_record_it():
    page, history = ("--set", "page.enabled=true"), ("--set", "history.enabled=true")

    def bound(rendered):
        found = [each for each in kinds(rendered, "RoleBinding") if each["roleRef"]["name"] == READER]
        return [subject["name"] for each in found for subject in each["subjects"]]

    def configurations(rendered):
        [role] = [each for each in kinds(rendered, "ClusterRole") if each["metadata"]["name"] == "fairgate-page"]
        return [rule for rule in role["rules"] if rule["resources"] == ["validatingwebhookconfigurations"]]

    both = render(*page, *history)
    assert bound(both) == ["fairgate-page"]
    [rule] = configurations(both)
    assert (rule["resourceNames"], rule["verbs"]) == (["fairgate"], ["get"])
    assert configurations(render(*page)) == []
    assert bound(render(*page)) == bound(render(*history)) == []
