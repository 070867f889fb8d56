"""The twenty questions of docs/tasks/users-more.md, asked by a person with `edit` in one namespace and the viewer role.

The same is asked by an admin. An answer is whole if it has all that the question asks for. There are departments, a
queue with a gang, an idle pod, an eviction and a workload with a minimum.
"""

import json
import re

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.prometheus import prometheus
from tests.control_plane.workbench import create_pod, make_nodes, wait_bound, wait_for
from tests.docs import pages
from tests.scenarios import serving
from tests.scenarios.dcgm import exporting
from tests.scenarios.evictor import evictor
from tests.scenarios.person import Person, said
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_idle import idle, wait_idle
from tests.scenarios.test_minimums import ready, service

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("promtool")]

QUESTIONS = pages.ROOT / "docs" / "tasks" / "users-more.md"
ASKED = {row[0]: row[1] for row in pages.table(QUESTIONS, first="question")}
POLICY = "defaults: {onNoRoom: queue, onLimit: queue}\nreclaim: {notice: 0s, minimumRuntime: 0s}\n"
DEPARTMENTS = """departments:
  - {name: research, gpus: {guaranteed: 20, limit: 25}}
  - {name: product, gpus: {guaranteed: 20, limit: 40}}
"""
TIER, HOSTNAME = "fairgate.dev/tier", "kubernetes.io/hostname"
MODEL = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
SMALL = {"cpu": "1", "memory": "4Gi"}
WHOLE = {
    "Why was my pod refused?": ["requested 30, limit 20", "(TeamLimitExceeded)"],
    "Why does my Job make no pods?": ["Refused", "requested 30, limit 20"],
    "What does my pod wait for?": ["waits: ", "10 GPUs", "department research"],
    "What of my Job (or PyTorchJob)?": ["0 of 1 pods exist|0 on nodes, 1 on none yet", "waits: "],
    "Does it wait, without Fairgate's command?": ["Queued", "waits: "],
    "Who uses what it waits for?": ["/Pod/", "starts whole, with 3 pods"],
    "Which position has it?": [r"(?m)^ +\d+ +\d+ +\S+/waits +a +\S+ +10 +"],
    "How long did others wait?": [r"waits .* last 1: <1m"],
    "Would this pod run?": ["outcome +queued", "ahead of it; 6th in the queue", "gpu-0"],
    "Would all pods of this manifest run?": [r"1 GPU workload: 1 queued", "6th in the queue"],
    "Which GPU models have room?": [r"A100-SXM4-80GB +gpu +30 +7 "],
    "What is the largest job that fits now?": [
        "1 pod of 5 +1 pod of 8",
        r"Deployment/chat +a +1 +2 +2 +1 ",
        "does not use 2 GPUs",
    ],
    "What may my team use?": [r"a +20 +20 +7 +0 +3 +0 +0 +5 ", r"department research +20 +25 +7 "],
    "Which of my pods borrow?": [r"(?m)^borrows .* preemptible", r"(?m)^train-0 .* guaranteed"],
    "Will my pod be evicted soon?": ["No eviction is announced"],
    "Why was my pod evicted?": ["Reclaimed", "team b takes its share back"],
    "Why this node?": ["It runs on gpu-0", "2: selectors, affinity or taints: gpu-1, gpu-2"],
    "Why not that node?": ["gpu-1: the node selector asks for kubernetes.io/hostname: gpu-0", "0 of 10 are free"],
    "What did we use last week?": [r"(?m)^a +\d", r"recorded 0\.\d\d of 168", "the sums that the leader published"],
    "Is Fairgate healthy?": [
        r"server +ok",
        r"leader +ok",
        r"evictor +ok",
        r"room +ok",
        r"reachable +ok",
        r"idle +ok",
        "1 with a minimum",
    ],
}
SECRETS = ("theirs",)


def policy_of(fairgate, prometheus_url):
    gpus = {"guaranteed": 20, "limit": 20}
    teams = [
        {"name": "a", "namespaces": [fairgate.team_a], "department": "research", "gpus": gpus},
        {"name": "b", "namespaces": [fairgate.team_b], "department": "product", "gpus": gpus},
    ]
    return serving.policy_of(teams, more=POLICY + DEPARTMENTS + idle(prometheus_url, "report"))


@pytest.fixture
def stage(cluster, tmp_path):
    make_nodes(cluster, 3, prefix="gpu", labels=MODEL)
    with (
        exporting() as exporter,
        prometheus(cluster, [exporter.scrape()]) as running,
        serve_fairgate(cluster, policy=POLICY, has_history=True) as fairgate,
        evictor(fairgate),
    ):
        serving.write_policy(fairgate.policy, policy_of(fairgate, running.url))
        wait_for(cluster, lambda: 'department="research"' in fairgate.get("/metrics"), what="the departments are known")
        vision, other = fairgate.team_a, fairgate.team_b
        person = Person(cluster, f"jane-{vision}", vision)
        person.becomes_viewer()
        for name, on in (("before", "gpu-1"), ("earlier", "gpu-1")):  # the second one waits for the first
            create_pod(cluster, vision, pod(name, gpus=10, nodeSelector={HOSTNAME: on}, **SMALL))
        for name in ("before", "earlier"):
            wait_bound(cluster, vision, name)
            cluster.api.delete(f"/api/v1/namespaces/{vision}/pods/{name}")
        for name, gpus, tier, on in (
            ("train-0", 2, "guaranteed", "gpu-0"),
            ("notebook", 2, "guaranteed", "gpu-2"),
            ("borrows", 1, "preemptible", "gpu-0"),
            ("evicted", 7, "preemptible", "gpu-1"),
        ):
            made = pod(name, gpus=gpus, labels={TIER: tier}, nodeSelector={HOSTNAME: on}, **SMALL)
            create_pod(cluster, vision, made)
            wait_bound(cluster, vision, name)
        exporter.use(vision, "notebook", 0, 1)
        exporter.use(vision, "train-0", 80, 90)
        cluster.kubectl.apply([service("chat", replicas=2, minimum=1)], "-n", vision)
        wait_for(cluster, lambda: ready(cluster, vision) == {"chat": 2}, what="the service runs")
        create_pod(cluster, other, pod("theirs", gpus=10, **SMALL))
        gone = f"/api/v1/namespaces/{vision}/pods/evicted"
        wait_for(cluster, lambda: not cluster.api.exists(gone), what="a borrower was evicted", timeout=60)
        create_pod(cluster, other, pod("theirs-too", gpus=6, **SMALL))
        wait_bound(cluster, other, "theirs")
        wait_bound(cluster, other, "theirs-too")
        create_pod(cluster, vision, pod("waits", gpus=10, **SMALL))
        gang = {"fairgate.dev/gang": "true"}
        for name, pods, gpus, annotations in (("sweep", 1, 10, {}), ("large", 1, 30, {}), ("gang", 3, 4, gang)):
            made = job(name, pods=pods, gpus=gpus, annotations=annotations, **SMALL)
            cluster.api.create(f"/apis/batch/v1/namespaces/{vision}/jobs", made)
        (tmp_path / "large.yaml").write_text(json.dumps(pod("too-large", gpus=30, **SMALL)))
        (tmp_path / "train.yaml").write_text(json.dumps(pod("new", gpus=1, **SMALL)))
        wait_idle(cluster, vision, "notebook")
        yield fairgate, person


def test_a_data_scientist_gets_whole_answers_and_an_admin_the_same(stage, tmp_path):
    assert ASKED.keys() == WHOLE.keys(), "the questions of the page"
    fairgate, person = stage
    cluster, vision = fairgate.cluster, fairgate.team_a

    def missing(question, kubeconfig):
        command = re.sub(r"\bvision\b", vision, ASKED[question])
        printed = said(command, kubeconfig, tmp_path)
        lacks = [each for each in WHOLE[question] if not re.search(each, printed, re.DOTALL)]
        if kubeconfig == person.kubeconfig:
            lacks += [f"no {each}" for each in (*SECRETS, fairgate.team_b) if each in printed]
        return [f"{question}: {lacks} in\n{printed}"] if lacks else []

    def settled():
        assert not (found := [text for question in ASKED for text in missing(question, person.kubeconfig)]), found
        return True

    wait_for(cluster, settled, what="all is published and reported", timeout=150)
    assert [text for question in ASKED for text in missing(question, cluster.kubeconfig)] == []
