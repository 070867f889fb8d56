"""The chart agrees with the code and with itself."""

import subprocess

import pytest
import yaml

import webhook
from tests.charts.generated import CHART, generated
from tests.charts.helm import kinds, render
from tests.charts.rights import granted
from tests.scenarios.serving import ROOT


@pytest.mark.parametrize("name", generated())
def test_generated_files_are_up_to_date(name):
    assert (CHART / name).read_text() == generated()[name], "run `make chart`"


def test_the_chart_installs_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == webhook.__version__


def test_make_builds_the_image_that_the_chart_uses():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    printed = subprocess.run(["make", "-n", "image"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"--tag {values['image']['repository']}:{webhook.__version__} ." in printed


def test_the_first_run_says_that_it_installs():
    printed = subprocess.run(["make", "-n", "-B", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.index("Installing Fairgate") < printed.index("-m venv")


def test_every_value_is_in_the_schema_and_described():
    described = (CHART / "README.md").read_text()
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for key, value in values.items():
        assert key in schema["properties"]
        below = schema["properties"][key].get("properties")
        for name in (f"{key}.{inner}" for inner in value) if below else [key]:
            assert f"`{name}" in described


@pytest.mark.cluster
@pytest.mark.usefixtures("helm_binary")
def test_the_roles_to_apply_without_the_chart_grant_exactly_what_it_grants():
    documented = yaml.safe_load_all((ROOT / "docs" / "reference" / "rights.yaml").read_text())
    # Without the definition of ledgers in the chart the server makes it.
    rendered = kinds(render("--set", "crds.enabled=false"), "Role", "ClusterRole")
    assert by_name(documented) == by_name(rendered)


def by_name(roles):
    return {(role["kind"], role["metadata"]["name"]): set(granted(role)) for role in roles}
