"""The commands other than `serve`, as a user runs them: exit statuses, outputs, help."""

import base64
import json
import re

import pytest
import yaml

from tests import forks
from tests.blackbox.server import policy_text

GOOD = policy_text(
    {
        "teams": [
            {"name": "vision", "namespaces": ["vision", "vision-*"], "gpus": {"guaranteed": 20, "limit": 32}},
            {"name": "nlp", "namespaces": ["nlp"], "gpus": {"guaranteed": "2.5", "limit": "unlimited"}},
        ],
        "pools": [{"name": "a100", "nodeSelector": {"gpu": "a100"}}],
        "resources": {"example.com/npu": {"gpus": 1}},
    }
)
BAD = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - name: vision
    namespace: [vision]
    gpus: {guaranteed: 20, limit: 10}
  - name: vision
    namespaces: [nlp]
    gpus: {guaranteed: 1.00000001}
  - name: nlp
    namespaces: [nlp]
pools:
  - name: a100
    affinity: [{key: mem, operator: Greater, values: ["1"]}]
    teams: [visoin]
"""
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
TO = ("--url", "https://127.0.0.1:8443")
ADDRESSES = {
    "plain": "http://127.0.0.1:8443",
    "path": "https://127.0.0.1:8443/mutate",
    "query": "https://127.0.0.1:8443?x=1",
    "user": "https://me@127.0.0.1:8443",
    "port": "https://127.0.0.1:99999",
    "bracket": "https://[::1",
    "host": "https://:8443",
    "nothing": "",
}
HELPED = ("", "serve", "manifests", "policy", "policy check", "policy schema", "review", "tryout")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("commands")
    for name, text in (("good", GOOD), ("bad", BAD), ("closed", GOOD)):
        (root / name).mkdir()
        (root / name / "policy.yaml").write_text(text)
    (root / "good" / "second.yml").write_text(policy_text({"exempt": {"namespaces": ["monitoring"]}}))
    (root / "closed").chmod(0o000)
    (root / "empty").mkdir()
    (root / "ca.crt").write_text(CA)
    (root / "rubbish.crt").write_text("rubbish")
    yield root
    (root / "closed").chmod(0o700)


@pytest.fixture(scope="module")
def results(folder):
    manifests = ("manifests", "--policy", folder / "good", "--ca", folder / "ca.crt")
    commands = {
        "check good": ("policy", "check", folder / "good"),
        "check one file": ("policy", "check", folder / "good" / "policy.yaml"),
        "check bad": ("policy", "check", folder / "bad"),
        "check empty": ("policy", "check", folder / "empty"),
        "check gone": ("policy", "check", folder / "gone"),
        "check closed": ("policy", "check", folder / "closed"),
        "schema": ("policy", "schema"),
        "url": (*manifests, *TO),
        "service": (*manifests, "--service", "fairgate-system/fairgate"),
        "no target": manifests,
        "two targets": (*manifests, *TO, "--service", "a/b"),
        "bad policy": ("manifests", "--policy", folder / "bad", "--ca", folder / "ca.crt", *TO),
        "no policy": ("manifests", "--policy", folder / "gone", "--ca", folder / "ca.crt", *TO),
        "no ca": ("manifests", "--policy", folder / "good", "--ca", folder / "gone.crt", *TO),
        "rubbish ca": ("manifests", "--policy", folder / "good", "--ca", folder / "rubbish.crt", *TO),
        **{f"to {name}": (*manifests, "--url", url) for name, url in ADDRESSES.items()},
        **{f"help {name}": (*name.split(), "--help") for name in HELPED},
        "serve bare": ("serve",),
        "unknown": ("frobnicate",),
        "version": ("--version",),
    }
    return {name: forks.run("webhook", *arguments, as_root=False) for name, arguments in commands.items()}


def test_a_valid_policy(results, folder):
    result = results["check good"]
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{folder / 'good'}: valid\n")
    assert "teams  nlp, vision" in result.stdout
    assert results["check one file"].returncode == 0


def test_every_problem_of_a_policy_is_reported_with_file_and_line(results, folder):
    result = results["check bad"]
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    found = [line.removeprefix(f"{folder / 'bad' / 'policy.yaml'}:") for line in result.stdout.splitlines()]
    wanted = (
        '5: teams[0].namespace: unknown field; did you mean "namespaces"?',
        "6: teams[0].gpus: guaranteed 20 is more than limit 10; raise the limit or lower the guaranteed share",
        '7: teams[1].name: "vision" is already declared at',
        "9: teams[1].gpus.guaranteed: 1.00000001 GPUs cannot be counted exactly",
        '11: teams[2].namespaces[0]: namespace "nlp" already belongs to team "vision" at',
        "14: pools[0].affinity[0].operator: expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        '15: pools[0].teams[0]: unknown team: expected one of nlp, vision; got "visoin"; did you mean "vision"?',
    )
    for want in wanted:
        assert [line for line in found if line.startswith(want)], (want, found)


@pytest.mark.parametrize(
    ("name", "status", "want"),
    [
        ("check empty", 1, "no policy files: expected at least one *.yaml or *.yml here"),
        ("check gone", 2, "No such file or directory"),
        ("check closed", 2, "Permission denied"),
        ("bad policy", 1, "policy.yaml:5: teams[0].namespace: unknown field"),
        ("no policy", 2, "No such file or directory"),
        ("no ca", 2, "does not exist"),
        ("rubbish ca", 2, "has no PEM certificate; give the ca.crt"),
        ("no target", 2, "give either --url or --service"),
        ("two targets", 2, "give either --url or --service"),
        ("serve bare", 2, "Missing option '--policy'"),
        ("unknown", 2, "No such command 'frobnicate'"),
        *((f"to {name}", 2, "expected https://HOST:PORT without a path") for name in ADDRESSES),
    ],
)
def test_errors_are_reported_without_a_traceback(results, name, status, want):
    result = results[name]
    printed = result.stdout if name == "check empty" else result.stderr
    assert result.returncode == status, result
    assert want in printed
    assert "Traceback" not in result.stderr


def test_the_schema_is_the_one_in_the_repository(results):
    result = results["schema"]
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == json.loads((forks.ROOT / "policies" / "schema.json").read_text())


def test_manifests_for_a_url(results):
    result = results["url"]
    assert (result.returncode, result.stderr) == (0, "")
    printed = list(yaml.safe_load_all(result.stdout))
    assert [made["kind"] for made in printed[:8]] == [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    mutating, validating, *guards = printed[6:]
    assert {made["kind"] for made in guards} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    hooks = mutating["webhooks"] + validating["webhooks"]
    bundle = base64.b64encode(CA.encode()).decode()
    paths = ["mutate", "jobs", "gangs", "validate", "workloads", "claims"]
    for hook, path in zip(hooks, paths, strict=True):
        assert hook["clientConfig"] == {"url": f"https://127.0.0.1:8443/{path}", "caBundle": bundle}
        assert hook["admissionReviewVersions"] == ["v1"]
        assert hook["sideEffects"] in ("None", "NoneOnDryRun")
        assert 1 <= hook["timeoutSeconds"] <= 30
        assert hook["matchConditions"]
        assert "monitoring" in str(hook["namespaceSelector"])
    assert '"nvidia.com/gpu"' in mutating["webhooks"][0]["matchConditions"][0]["expression"]
    assert '"example.com/npu"' in mutating["webhooks"][0]["matchConditions"][0]["expression"]
    assert mutating["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"


def test_manifests_for_a_service(results):
    mutating = next(made for made in yaml.safe_load_all(results["service"].stdout) if "webhooks" in made)
    service = mutating["webhooks"][0]["clientConfig"]["service"]
    assert service == {"namespace": "fairgate-system", "name": "fairgate", "port": 443, "path": "/mutate"}


@pytest.mark.parametrize("name", HELPED)
def test_help_explains_every_option(results, name):
    result = results[f"help {name}"]
    assert (result.returncode, result.stderr) == (0, "")
    options = re.split(r"\n(?=  -)", result.stdout.partition("Options:\n")[2].partition("\n\n")[0])
    assert options
    for option in options:
        assert re.search(r"\s{2,}[A-Z0-9][A-Za-z ]", option.strip()), option
    if name not in ("policy", "tryout"):
        assert re.search("Examples:|First steps:|Show the version", result.stdout)


def test_the_version(results):
    result = results["version"]
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"fairgate, version \d+\.\d+\.\d+\S*\n", result.stdout)
