"""Messages to people from two servers and an evictor, on a real control plane, at real receivers."""

import json

import pytest
from click.testing import CliRunner

from tests.addons.messages.receiver import folder_of
from tests.cluster.support.pki import Authority
from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import REPORTS
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for
from tests.scenarios.evictor import ask, evicted, evictor, fill, wait_bound
from tests.scenarios.message_receiver import receiving_messages
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from webhook.cli.main import main

pytestmark = pytest.mark.cluster

TOKEN = "s3cr3t-token"
POLICY = """notify:
  cluster: east
  refusals: {above: 4, within: 10m}
  targets:
  - {name: on-call, url: %s, kinds: [refusals, limits, trouble]}
  - {name: gone, url: "http://127.0.0.1:1/", kinds: [idle]}
  - {name: channel, url: "%s", kinds: [evictions], tokenFile: token, caFile: ca.crt}
"""


def refuse(cluster, namespace, count):
    """Ask for more than the limit, through whichever replicas the API server calls."""
    for number in range(count):
        with pytest.raises(ApiError, match="exceeded quota"):
            create_pod(cluster, namespace, pod(f"greedy{number}", gpus=10, cpu="1", memory="4Gi"))


def command(cluster, name, *words):
    done = CliRunner().invoke(main, [name, "--kubeconfig", str(cluster.kubeconfig), *words, "-o", "json"])
    return json.loads(done.stdout)


def test_evictions_and_refusals_arrive_once(cluster, tmp_path):
    make_nodes(cluster, 3)
    authority = Authority(tmp_path, "ca")
    secrets = folder_of(tmp_path / "secrets", authority, token=TOKEN)
    with receiving_messages() as on_call, receiving_messages(authority) as channel:
        policy = POLICY % (on_call.url, channel.url)
        with (
            serve_fairgate(cluster, limit_a=30, limit_b=20, policy=policy, replicas=2, is_own=True) as fairgate,
            evictor(fairgate, "--notify-secrets", secrets) as running,
        ):
            mine, theirs = fairgate.team_a, fairgate.team_b
            names = fill(cluster, mine, 30, labels={TIER: "preemptible"})
            ask(cluster, theirs, "b0", gpus=10)
            wait_bound(cluster, theirs, "b0")
            gone = evicted(cluster, mine, names)
            assert len(gone) == 10
            wait_for(cluster, lambda: channel.messages, what="a message of the evictions")
            ask(cluster, theirs, "b1", gpus=10)
            wait_bound(cluster, theirs, "b1")
            refuse(cluster, theirs, 8)
            wait_for(cluster, lambda: on_call.of("refusals"), what="a message of the refusals")
            wait_for(cluster, lambda: on_call.of("limits"), what="a message of the limit", timeout=90)
            [lost] = channel.messages
            labels, shown = lost["commonLabels"], lost["commonAnnotations"]
            assert (labels["subject"], labels["cluster"], shown["summary"]) == ("a", "east", "team a: 10 pods evicted")
            lines = shown["description"].split("\n")
            assert sorted(line.split()[1] for line in lines) == sorted(f"{mine}/{name}" for name in gone)
            assert all("team b takes its share back" in line for line in lines)
            assert channel.tokens == [f"Bearer {TOKEN}"]
            [refused] = on_call.of("refusals")
            assert (refused["commonLabels"]["subject"], refused["status"]) == ("b", "firing")
            assert refused["commonAnnotations"]["description"].startswith("TeamLimitExceeded: ")
            [full] = on_call.of("limits")
            assert "team b holds 20 of at most 20 GPUs: nothing is left" in json.dumps(full)

            shown = "target gone: no connection: Connection refused"
            [found] = [each for each in command(cluster, "doctor")["findings"] if each["check"] == "notify"]
            assert (found["state"], found["message"].partition(" (from ")[0]) == ("wrong", shown)
            assert command(cluster, "status")["notify"] == [shown]
            assert TOKEN not in json.dumps(cluster.api.get(f"{REPORTS}/replicas"))
            assert not [line for line in running.said() if TOKEN in json.dumps(line)]

            # the leader goes: its successor sends what lasts once more, and nothing that happened
            leader = next(number for number in (0, 1) if fairgate.metric("fairgate_leader", replica=number))
            fairgate.stop(replica=leader)
            wait_for(cluster, lambda: len(on_call.of("limits")) == 2, what="the next leader's messages", timeout=120)
            assert len(channel.messages) == 1
            assert len(on_call.of("refusals")) == 1
            assert {each["status"] for each in on_call.of("limits")} == {"firing"}
