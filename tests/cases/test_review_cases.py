"""Whole reviews as data: a policy, a world (none: --empty) and manifests, and what must come of them.

`want` names what matters: the exit status, parts of the JSON (`workloads`, `summary`; lists must be equal in length),
and parts of annotations.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cases.samples import read_yaml
from tests.cases.test_cases import assert_part, node, pod
from webhook.cli.main import main

CASES = sorted((Path(__file__).parent / "review").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = read_yaml(path)
    Path("policy.yaml").write_text(
        json.dumps({"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy"} | case["policy"])
    )
    Path("m.yaml").write_text(case["manifests"])
    world = []
    if "world" in case:
        objects = [node(name, given or {}) for name, given in case["world"]["nodes"].items()]
        objects += [pod(given) for given in case["world"].get("pods", [])]
        Path("world.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        world = ["--world", "world.yaml"]
    arguments = ["review", "--policy", "policy.yaml", *world, *case.get("args", []), "m.yaml"]
    result = CliRunner().invoke(main, [*arguments, "-o", "json", "-o", "github=annotations"])
    want = case["want"]
    assert result.exit_code == want["exit"], result.output
    report = json.loads(result.stdout)
    assert_part({key: want[key] for key in ("workloads", "summary") if key in want}, report, "report")
    annotations = Path("annotations").read_text().splitlines()
    for part in want.get("findings", []):
        assert [line for line in annotations if part in line], annotations
    assert (want["exit"] == 0) <= (not [line for line in annotations if line.startswith("::error")])
