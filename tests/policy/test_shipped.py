"""What ships with Fairgate: default policy, examples, schema and README."""

import json
import re
from pathlib import Path

import pytest

from webhook.core.model.amounts import ONE_GPU
from webhook.policy.schema import json_schema
from webhook.policy.values import Spec
from webhook.policy.watch import load

POLICIES = Path(__file__).parents[2] / "policies"
README = (POLICIES / "README.md").read_text()
EXAMPLES = sorted((POLICIES / "examples").glob("*.yaml"))


def test_default_policy_is_two_teams_of_twenty():
    policy = load(POLICIES / "default")
    shares = {t.name: (t.gpus.guaranteed // ONE_GPU, t.gpus.limit // ONE_GPU) for t in policy.teams}
    assert shares == {"team-a": (20, 40), "team-b": (20, 20)}
    assert policy.exempt_namespaces == ("kube-system",)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_a_policy(example):
    assert load(example).teams


def test_committed_schema_is_up_to_date():
    assert json.loads((POLICIES / "schema.json").read_text()) == json_schema(), "run `make schema`"


def test_schema_has_no_null_and_uses_camel_case():
    text = (POLICIES / "schema.json").read_text()
    assert "null" not in text
    assert re.findall(r'"[a-z]+_[a-z]+":', text) == []


def specs(base=Spec):
    for spec in base.__subclasses__():
        yield spec
        yield from specs(spec)


def test_every_field_is_described_for_editors():
    bare = [f"{spec.__name__}.{name}" for spec in specs() for name, f in spec.model_fields.items() if not f.description]
    assert bare == []


def names():
    return {f.alias or name for spec in specs() for name, f in spec.model_fields.items()}


def test_one_example_has_every_field():
    text = (POLICIES / "examples" / "every-field.yaml").read_text()
    assert names() - set(re.findall(r"\b(\w+):", text)) == set()


def test_readme_names_every_field():
    fields = names()
    named = {part for code in re.findall(r"`([A-Za-z.]+)`", README) for part in code.split(".")}
    assert fields - named == set()
