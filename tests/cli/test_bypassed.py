"""`fairgate bypassed`: its table, its data, and its exit status."""

import json

from click.testing import CliRunner

from tests import builders as b
from tests.cli import sample_world
from webhook.cli.main import main
from webhook.kube.objects import keys

DECIDED = {keys.DECISION: json.dumps({"gpus": "1", "code": "WithinShare", "policy": "p", "at": "then"})}


def bypassed(folder, *words, pods):
    options = sample_world.write(folder, [b.node("gpu-1", gpus=8), *pods])
    return CliRunner().invoke(main, ["bypassed", *options, *words], catch_exceptions=False)


def test_who_came_past_the_webhook_is_listed_and_ends_with_one(tmp_path):
    labels = {keys.TEAM: "vision", keys.TIER: "guaranteed"}
    decided = b.pod("train", namespace="vision", gpus=1, node="gpu-1", labels=labels, annotations=DECIDED)
    past = b.pod("past", namespace="vision", gpus=2, node="gpu-1")
    done = bypassed(tmp_path, pods=[decided, past])
    assert done.exit_code == 1
    assert "vision/past" in done.stdout
    assert "vision/train" not in done.stdout
    assert done.stdout.endswith("1 pod without a decision of Fairgate\n")
    [row] = json.loads(bypassed(tmp_path, "-o", "json", pods=[decided, past]).stdout)["pods"]
    assert (row["pod"], row["team"], row["gpus"], row["node"], row["tier"]) == (
        "vision/past",
        "vision",
        "2",
        "gpu-1",
        "",
    )
    none = bypassed(tmp_path, "-n", "nlp", pods=[decided, past])
    assert (none.exit_code, none.stdout) == (0, "no pod bypassed Fairgate\n")
