"""`fairgate manifests`, as it is called."""

import base64
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from webhook.cli.manifests import manifests

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 20, limit: 32}}
exempt: {namespaces: [kube-system, monitoring]}
"""
DEVICES = ("fairgate-devices", "fairgate-devices-env", "fairgate-devices-volumes")
CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "policy"
    made.mkdir()
    (made / "policy.yaml").write_text(POLICY)
    return made


@pytest.fixture
def ca(tmp_path):
    made = tmp_path / "ca.crt"
    made.write_bytes(CA)
    return made


def run(*arguments):
    return CliRunner().invoke(manifests, [str(argument) for argument in arguments])


def test_the_definition_and_two_configurations_are_printed_for_a_url(folder, ca):
    result = run("--policy", folder, "--url", "https://127.0.0.1:8443", "--ca", ca)
    assert result.exit_code == 0, result.output
    *first, mutating, validating = list(yaml.safe_load_all(result.stdout))[:8]
    guards = list(yaml.safe_load_all(result.stdout))[8:]
    assert [made["metadata"]["name"] for made in first] == [
        "teamledgers.fairgate.dev",
        "reports.fairgate.dev",
        "heldnodes.fairgate.dev",
        "fairgate-viewer",
        "fairgate-server-kinds",
        "fairgate-evictor-kinds",
    ]
    assert mutating["webhooks"][0]["clientConfig"] == {
        "url": "https://127.0.0.1:8443/mutate",
        "caBundle": base64.b64encode(CA).decode(),
    }
    names = ["validate.fairgate.dev", "workloads.fairgate.dev", "claims.fairgate.dev"]
    assert [hook["name"] for hook in validating["webhooks"]] == names
    assert "nvidia.com/gpu" in mutating["webhooks"][0]["matchConditions"][0]["expression"]
    [excluded] = mutating["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert {"fairgate-system", "kube-system", "monitoring", "gpu-operator"} <= set(excluded["values"])
    assert [made["metadata"]["name"] for made in guards[::2]] == [
        "fairgate-labels",
        "fairgate-held-room",
        "fairgate-tenancy",
        "fairgate-forged",
        "fairgate-grace",
        "fairgate-sizes",
        "fairgate-binding-sizes",
        "fairgate-held-bindings",
        "fairgate-held-node-names",
        "fairgate-held-devices",
        *DEVICES,
    ]
    assert [bound["spec"]["policyName"] for bound in guards[1::2]] == [made["metadata"]["name"] for made in guards[::2]]
    assert "&id" not in result.stdout


@pytest.mark.parametrize(
    ("mode", "want", "devices"),
    [
        ("enforce", ["Deny"], ["Warn", "Audit"]),
        ("warn", ["Warn", "Audit"], ["Warn", "Audit"]),
        ("shadow", ["Audit"], ["Audit"]),
    ],
)
def test_guards_follow_the_policys_enforcement(folder, mode, want, devices):
    printed = run("--policy", folder, "--url", "https://127.0.0.1:8443", "--enforce", mode).stdout
    bound = {
        made["metadata"]["name"]: made["spec"]["validationActions"]
        for made in yaml.safe_load_all(printed)
        if made["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    held = ("held-bindings", "held-node-names", "held-devices")
    names = ("labels", "held-room", "tenancy", "forged", "grace", "sizes", "binding-sizes", *held)
    assert bound == dict.fromkeys([f"fairgate-{name}" for name in names], want) | dict.fromkeys(DEVICES, devices)


def test_with_enforcement_off_only_definitions_and_the_roles_are_printed(folder):
    printed = run("--policy", folder, "--url", "https://127.0.0.1:8443", "--enforce", "off").stdout
    assert [made["kind"] for made in yaml.safe_load_all(printed)] == [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
    ]


def test_devices_may_be_ignored(folder):
    (folder / "policy.yaml").write_text(POLICY + "defaults: {deviceAccess: ignore}\n")
    printed = yaml.safe_load_all(run("--policy", folder, "--url", "https://127.0.0.1:8443").stdout)
    assert not {made["metadata"]["name"] for made in printed} & set(DEVICES)


def test_guards_can_be_omitted_and_users_trusted(folder):
    address = ("--policy", folder, "--url", "https://127.0.0.1:8443")
    assert "ValidatingAdmissionPolicy" not in run(*address, "--no-guards").stdout
    assert (
        'request.userInfo.username in ["ada", "bob"] || '
        in run(*address, "--trusted-user", "bob", "--trusted-user", "ada").stdout
    )


def test_without_a_ca_the_bundle_is_omitted(folder):
    result = run("--policy", folder, "--url", "https://127.0.0.1:8443")
    assert result.exit_code == 0, result.output
    clients = [hook["clientConfig"] for made in yaml.safe_load_all(result.stdout) for hook in made.get("webhooks", ())]
    assert len(clients) == 6
    assert all("caBundle" not in client for client in clients)


@pytest.mark.parametrize(
    ("service", "port"), [("fairgate-system/fairgate", 443), ("fairgate-system/fairgate:8443", 8443)]
)
def test_a_service_is_addressed_by_namespace_name_and_port(folder, ca, service, port):
    result = run("--policy", folder, "--service", service, "--ca", ca)
    assert result.exit_code == 0, result.output
    mutating = next(found for found in yaml.safe_load_all(result.stdout) if "webhooks" in found)
    assert mutating["webhooks"][0]["clientConfig"]["service"] == {
        "namespace": "fairgate-system",
        "name": "fairgate",
        "port": port,
        "path": "/mutate",
    }


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], "give either --url or --service"),
        (["--url", "https://h:1", "--service", "a/b"], "give either --url or --service"),
        (["--url", "http://h:1"], "expected https://HOST:PORT"),
        (["--url", "https://h:1/mutate"], "without a path"),
        (["--service", "fairgate"], "expected NAMESPACE/NAME"),
        (["--service", "a/b:0"], "expected NAMESPACE/NAME"),
        (["--service", "a/b:70000"], "expected NAMESPACE/NAME"),
        (["--static", "/tmp"], "--static needs --url"),
        (["--static", "--service", "a/b"], "--static needs --url"),
        (["--static", "--url", "http://h:1"], "expected https://HOST:PORT"),
        (["--static", "--url", "https://h:1/mutate"], "without a path"),
    ],
)
def test_urls_that_the_api_server_refuses_are_refused(folder, ca, arguments, want):
    result = run("--policy", folder, "--ca", ca, *arguments)
    assert result.exit_code == 2
    assert want in result.stderr


def test_a_file_without_a_certificate_is_refused(folder, tmp_path):
    (tmp_path / "key").write_text("secret")
    result = run("--policy", folder, "--url", "https://h:1", "--ca", tmp_path / "key")
    assert result.exit_code == 2
    assert "no PEM certificate" in result.stderr


def test_every_problem_of_a_policy_is_reported(folder, ca):
    (folder / "policy.yaml").write_text(POLICY + "nonsense: 1\nmore: 2\n")
    result = run("--policy", folder, "--url", "https://h:1", "--ca", ca)
    assert result.exit_code == 1
    assert "nonsense" in result.stderr
    assert "more" in result.stderr
    assert result.stdout == ""


class TestStatic:
    """Files for kube-apiserver."""

    FILES = (
        "admission.yaml",
        "mutating-webhooks/fairgate.yaml",
        "validating-webhooks/fairgate.yaml",
        "validating-policies/fairgate.yaml",
        "objects.yaml",
    )

    def test_a_folder_has_all_that_an_installation_needs_each_part_once(self, folder, ca, tmp_path):
        address, target = ("--policy", folder, "--url", "https://h:1", "--ca", ca), tmp_path / "static"
        result = run(*address, "--static", target)
        assert result.exit_code == 0, result.output
        assert result.stdout.split() == [f"{target}/{path}" for path in self.FILES]
        assert sorted(each for each in target.rglob("*") if each.is_file()) == sorted(target / p for p in self.FILES)
        written = [each for path in self.FILES[1:] for each in yaml.safe_load_all((target / path).read_text())]
        names = [(each["kind"], each["metadata"]["name"].removesuffix(".static.k8s.io")) for each in written]
        whole = yaml.safe_load_all(run(*address).stdout)
        assert sorted(names) == sorted((each["kind"], each["metadata"]["name"]) for each in whole)
        head = (target / "admission.yaml").read_text()
        plugins = yaml.safe_load(head)["plugins"]
        assert {Path(each["configuration"]["staticManifestsDir"]).parent for each in plugins} == {target}
        assert "fairgate-held-bindings, fairgate-held-node-names, fairgate-held-devices" in head
        assert "caBundle" not in head

    def test_it_is_written_again_over_what_was_there_and_other_files_stay(self, folder, ca, tmp_path):
        for mode in ("enforce", "off"):
            (tmp_path / "mutating-webhooks").mkdir(exist_ok=True)
            (tmp_path / "mutating-webhooks" / "other.yaml").write_text("other")
            done = run("--policy", folder, "--url", "https://h:1", "--ca", ca, "--enforce", mode, "--static", tmp_path)
            assert done.exit_code == 0
            is_empty = (tmp_path / "mutating-webhooks" / "fairgate.yaml").read_text() == ""
            assert is_empty is (mode == "off"), "kube-apiserver reads no file of comments alone"
        assert (tmp_path / "mutating-webhooks" / "other.yaml").read_text() == "other"

    def test_without_a_folder_what_kube_apiserver_reads_is_printed(self, folder):
        result = run("--static", "--policy", folder, "--url", "https://h:1", "--no-guards")
        assert result.exit_code == 0, result.output
        configuration, *made = yaml.safe_load_all(result.stdout)
        assert configuration["kind"] == "AdmissionConfiguration"
        assert [each["metadata"]["name"] for each in made] == ["zz-fairgate.static.k8s.io", "fairgate.static.k8s.io"]
        assert all(hook["clientConfig"].keys() == {"url"} for each in made for hook in each["webhooks"])
        assert "There is no caBundle" in result.stdout

    def test_a_folder_that_cannot_be_written_is_named(self, folder, tmp_path):
        (tmp_path / "file").write_text("")
        result = run("--policy", folder, "--url", "https://h:1", "--static", tmp_path / "file")
        assert result.exit_code == 2
        assert f"cannot write {tmp_path}/file" in result.stderr
        assert (tmp_path / "file").read_text() == ""


def test_a_missing_policy_cannot_be_read(tmp_path, ca):
    result = run("--policy", tmp_path / "none", "--url", "https://h:1", "--ca", ca)
    assert result.exit_code == 2
    assert "none" in result.stderr
