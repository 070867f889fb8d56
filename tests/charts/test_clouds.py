"""The values and policies on the pages about clouds: helm takes them, and each page says where its claims are from."""

import re

import pytest
import yaml

from tests.charts.helm import NAMESPACE, WITH_UNINSTALL, kinds, render
from tests.docs import pages
from webhook.policy.watch import parse

PAGE = pages.ROOT / "docs" / "tasks" / "clouds.md"
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents(*, is_policy):
    """The YAML of each cloud's section: its policies, or its values of the chart."""
    sections = (each.partition("\n") for each in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:])
    return [
        pytest.param(text, id=name)
        for name, _, section in sections
        for text in _YAML.findall(section)
        if ("kind: Policy" in text) is is_policy
    ]


VALUES = documents(is_policy=False)
POLICIES = documents(is_policy=True)


def test_there_are_values_for_each_cloud():
    assert {each.id for each in VALUES} == {"AKS", "EKS", "GKE", "GKE Autopilot", "OpenShift"}


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
@pytest.mark.parametrize("text", VALUES)
def test_values_of_the_pages_about_clouds_render(text, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(text)
    [deployment] = kinds(render("-f", values), "Deployment")
    port = yaml.safe_load(text).get("server", {}).get("port", 8443)
    [server] = [each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "server"]
    assert [each["containerPort"] for each in server["ports"]] == [port]


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
def test_on_autopilot_nothing_is_made_in_kube_system(tmp_path):
    [[text]] = [each.values for each in VALUES if each.id == "GKE Autopilot"]
    values = tmp_path / "values.yaml"
    values.write_text(text)
    found = render("-f", values, "--set", "page.enabled=true", *WITH_UNINSTALL, with_hooks=True)
    assert {each["metadata"].get("namespace", NAMESPACE) for each in found} == {NAMESPACE}


@pytest.mark.parametrize("text", POLICIES)
def test_policies_of_the_pages_about_clouds_are_valid(text):
    assert parse({PAGE.name: text.encode()}, origin=PAGE.name).teams


def test_a_claim_is_tested_or_read():
    text = PAGE.read_text()
    assert len(re.findall(r"\(read:\s", text)) >= 10
    for name, path in re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text):
        assert f"def {name}(" in (PAGE.parent / path).read_text(), name
