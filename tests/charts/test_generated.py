"""The chart agrees with the code and with itself."""

import pytest
import yaml

import webhook
from tests.charts.generated import CHART, generated


@pytest.mark.parametrize("name", generated())
def test_generated_files_are_up_to_date(name):
    assert (CHART / name).read_text() == generated()[name], "run `make chart`"


def test_the_chart_installs_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == webhook.__version__


def test_every_value_is_in_the_schema_and_described():
    described = (CHART / "README.md").read_text()
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for key, value in values.items():
        assert key in schema["properties"]
        below = schema["properties"][key].get("properties")
        for name in (f"{key}.{inner}" for inner in value) if below else [key]:
            assert f"`{name}" in described
