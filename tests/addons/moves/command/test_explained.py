"""`fairgate explain` names the moves of other pods that would make room for a pod."""

import json

from click.testing import CliRunner

from tests import builders as b
from tests.addons.moves.command.test_defragment import POLICY, nodes, pending, pod, scattered
from tests.cli.queue.test_queue import gated
from webhook.cli.main import main


def explained(folder, found, what, layout="json", namespace="vision"):
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "world.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    options = ["--policy", str(folder / "policy.yaml"), "--world", str(folder / "world.json"), "-o", layout]
    result = CliRunner().invoke(main, ["explain", *options, "-n", namespace, what])
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.output)[0] if layout == "json" else result.output


def moves(report):
    return None if report["moves"] is None else [(move["pod"], move["from"], move["to"]) for move in report["moves"]]


def test_of_a_pod_that_its_scheduler_finds_no_room_for(tmp_path):
    train = pending("train", 4)
    train["metadata"]["labels"]["fairgate.dev/tier"] = "preemptible"
    report = explained(tmp_path, [*scattered(), train], "pod/train")
    assert moves(report) == [("nlp/b", "gpu-2", "gpu-1")]


def test_of_a_pod_in_line(tmp_path):
    found = [*scattered(), gated("first", gpus=4)]
    assert moves(explained(tmp_path, found, "pod/first")) == [("nlp/b", "gpu-2", "gpu-1")]


def test_of_a_manifest(tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(b.pod("new", namespace="vision", gpus=4, labels={"fairgate.dev/tier": "preemptible"})))
    assert moves(explained(tmp_path, scattered(), str(path))) == [("nlp/b", "gpu-2", "gpu-1")]


def test_not_of_a_pod_that_has_room_or_that_a_limit_keeps_out(tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(b.pod("new", namespace="vision", gpus=3)))
    assert moves(explained(tmp_path, scattered(), str(path))) is None
    limited = gated("first", gpus=4, namespace="small")
    assert moves(explained(tmp_path, [*scattered(), limited], "pod/first", namespace="small")) is None


def test_not_where_reclaim_makes_the_room(tmp_path):
    borrower = pod("a", node="gpu-1", namespace="small")
    fixed = pod("b", 3, node="gpu-2", tier="guaranteed")
    report = explained(tmp_path, [*nodes(4, 4), borrower, fixed, pending("train", 4)], "pod/train")
    assert (report["reclaim"]["state"], moves(report)) == ("possible", None)


def test_the_text_says_what_they_cost_and_that_nothing_is_moved(tmp_path):
    text = explained(tmp_path, [*scattered(), gated("first", gpus=4)], "pod/first", layout="table")
    assert "moves    1 move would make room on gpu-2: nlp/b to gpu-1" in text
    assert "0.5 GPU-hours of work would be done again; no pod is moved unless an admin evicts it" in text
