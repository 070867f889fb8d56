"""The values and policies on the pages about clouds: helm takes them, and each page says where its claims are from."""

import re

import pytest
import yaml

from tests.charts.helm import NAMESPACE, WITH_UNINSTALL, kinds, render
from tests.docs import pages
from webhook.policy.load import parse

PAGES = sorted((pages.ROOT / "docs" / "clouds").glob("*.md"))


def documents(page, *, is_policy):
    """The YAML of a page: its policies, or its values of the chart."""
    found = [block.text for block in pages.blocks(page) if block.language == "yaml"]
    return [text for text in found if ("kind: Policy" in text) is is_policy]


VALUES = [(page, text) for page in PAGES for text in documents(page, is_policy=False)]
POLICIES = [(page, text) for page in PAGES for text in documents(page, is_policy=True)]


def test_there_is_a_page_for_each_cloud():
    assert {page.stem for page in PAGES} == {"aks", "eks", "gke", "gke-autopilot", "openshift"}
    assert {page.stem for page, _ in VALUES} == {page.stem for page in PAGES}


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
@pytest.mark.parametrize(("page", "text"), VALUES, ids=lambda value: getattr(value, "stem", ""))
def test_values_of_the_pages_about_clouds_render(page, text, tmp_path):
    values = tmp_path / f"{page.stem}.yaml"
    values.write_text(text)
    [deployment] = kinds(render("-f", values), "Deployment")
    port = yaml.safe_load(text).get("server", {}).get("port", 8443)
    [server] = [each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "server"]
    assert [each["containerPort"] for each in server["ports"]] == [port]


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
def test_on_autopilot_nothing_is_made_in_kube_system(tmp_path):
    [text] = [text for page, text in VALUES if page.stem == "gke-autopilot"]
    values = tmp_path / "values.yaml"
    values.write_text(text)
    found = render("-f", values, "--set", "page.enabled=true", *WITH_UNINSTALL, with_hooks=True)
    assert {each["metadata"].get("namespace", NAMESPACE) for each in found} == {NAMESPACE}


@pytest.mark.parametrize(("page", "text"), POLICIES, ids=lambda value: getattr(value, "stem", ""))
def test_policies_of_the_pages_about_clouds_are_valid(page, text):
    assert parse({page.name: text.encode()}, origin=page.name).teams


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_claim_is_tested_or_read(page):
    text = page.read_text()
    assert len(re.findall(r"\(read:\s", text)) >= 3
    for name in re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", text):
        assert f"def {name[0]}(" in (page.parent / name[1]).read_text(), name
