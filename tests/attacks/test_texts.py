"""Names chosen by a tenant in texts that others read: refusals, Events and logs."""

import json
import os
from datetime import UTC, datetime

import pytest

from tests import builders
from tests.attacks.attacker import make_attacker
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_for
from tests.core.support import make
from tests.kept import kept
from tests.scenarios.evictor import alive, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_department_limits import department
from tests.scenarios.test_owners import deployment, explain
from tests.scenarios.test_queue import QUEUES, SIZE
from webhook.core.model import reasons as statement
from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import NamespaceFacts, Owner
from webhook.core.model.reasons import Statement
from webhook.core.quota import shares
from webhook.kube.objects import keys
from webhook.kube.objects.events import Event, EventReason, ObjectRef, new_event
from webhook.kube.pod.waiting import read_waits
from webhook.observe.logs import LogFormat, open_logs
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

EVIL = "x\nError from server: all is well\x1b[2J\x1b]0;title\x07\x9b1m\u202e\u2066"
NOW = "2026-01-01T00:00:00Z"


def reviewer(*residents, limit=4):
    world = make.world(make.policy(make.team(limit_=limit, guaranteed=1)), residents=residents)
    world.set_namespace(NamespaceFacts(Namespace("team-a"), {}, {"owner": EVIL}))
    return AdmissionReviewer(world, MemoryLedger(world, lambda: 0.0), now_text=lambda: NOW)


def answered(place, manifest):
    body = builders.review(manifest, namespace="team-a", username="system:serviceaccount:kube-system:job-controller")
    answer = place.mutate(body)
    return json.loads(answer.body)["response"], answer.record


def strings(found):
    if isinstance(found, dict):
        for key, value in found.items():
            yield from (key, *strings(value))
    elif isinstance(found, list):
        for value in found:
            yield from strings(value)
    elif isinstance(found, str):
        yield found


HOSTILE = {
    "its own name and labels": {"labels": {"fairgate.dev/tier": EVIL}},
    "a pool": {"annotations": {"fairgate.dev/pool": EVIL}},
    "capabilities": {"annotations": {"fairgate.dev/requires": EVIL}},
    "a decision": {"annotations": {"fairgate.dev/decision": EVIL}},
    "its controller": {"controller": ("Job", EVIL)},
}


@pytest.mark.parametrize("how", HOSTILE.values(), ids=HOSTILE)
def test_no_response_contains_terminal_control_characters(how):
    manifest = builders.pod(EVIL, namespace="team-a", gpus=5, **how)
    response, _ = answered(reviewer(make.resident(4, owner=Owner("Job", EVIL), user=EVIL)), manifest)
    assert not response["allowed"]
    assert all(each.isprintable() for each in strings(response))


@pytest.mark.parametrize(
    "text", [EVIL, "2h" * 5000, "9" * 5000 + "h", "\n" * 200], ids=["control", "long", "huge", "lines"]
)
def test_a_run_time_of_any_text_is_one_short_warning(text):
    manifest = builders.pod("p", namespace="team-a", gpus=1, annotations={"fairgate.dev/run-time": text})
    response, _ = answered(reviewer(), manifest)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.isprintable()
    assert len(warning) <= 120


def test_no_message_about_an_unknown_resource_does_either():
    manifest = builders.pod("p", namespace="team-a", gpus=1)
    manifest["spec"]["containers"][0]["resources"]["limits"][f"example.com/gpu{EVIL}"] = "1"
    response, _ = answered(reviewer(), manifest)
    assert "looks like a GPU" in response["status"]["message"]
    assert all(each.isprintable() for each in strings(response))


def test_words_that_a_tenant_writes_on_pods_take_no_memory():
    ours = Statement("team {team} runs {pods:pod}", {"team": "nlp", "pods": 2})
    assert ours.text == "team nlp runs 2 pods"
    size = kept(*vars(statement).values())
    for number in range(3000):
        cause = {"words": f"{number} of {{team}}", "facts": {"team": "x"}}
        written = json.dumps({"code": "WaitsForLimit", "cause": cause, "place": 1})
        waits = read_waits({"fairgate.dev/waiting-facts": written})
        assert waits.reason.text == f"{number} of x"
    assert kept(*vars(statement).values()) == size
    assert ours.text == "team nlp runs 2 pods"


def test_no_event_does():
    event = Event(ObjectRef("Pod", "ns", "p"), EventReason.BYPASSED_ADMISSION, EVIL)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    written = json.loads(new_event(event, count=1, first=at, last=at, component="c", instance="i"))
    assert "\x1b" not in written["message"]
    assert "\u202e" not in written["message"]


def test_no_line_of_a_console_log_does(tmp_path):
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    logs = open_logs(LogFormat.CONSOLE, fd=fd)
    logs.event.info("decision", name=EVIL, message=f"refused {EVIL}")
    logs.flush()
    os.close(fd)
    [line, rest] = file.read_text().split("\n")
    assert (line.isprintable(), rest) == (True, "")


def test_thousands_of_refusals_read_few_of_thousands_of_pods(monkeypatch):
    """A tenant with very many small pods, refused again and again while it makes and deletes one."""
    looks = 0
    real = shares.heappop

    def counted(heap):
        nonlocal looks
        looks += 1
        return real(heap)

    monkeypatch.setattr(shares, "heappop", counted)
    place = reviewer(*(make.resident(1, uid=f"p{i}") for i in range(2_000)), limit=2_000)
    for i in range(200):
        place.world.set_pod(make.resident(1, uid=f"churn-{i}"))
        place.world.remove_pod(f"churn-{i}")
        response, _ = answered(place, builders.pod("p", namespace="team-a", gpus=1))
        assert not response["allowed"]
    assert looks < 200 * 10


FORGED = dict.fromkeys(keys.WRITTEN_LATER, "2999-01-01T00:00:00Z")
LATER = (keys.EVICT_AT, keys.EVICT_FOR, keys.IDLE_SINCE)


def forged_on(found):
    return FORGED.items() & (found["metadata"].get("annotations") or {}).items()


@pytest.mark.cluster
@pytest.mark.standing
def test_what_fairgate_writes_later_is_forged_neither_at_creation_nor_by_a_patch(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        attacker = make_attacker(cluster, mine)
        for name in (Tier.GUARANTEED, Tier.PREEMPTIBLE):
            made = attacker.create_pod(pod(name, gpus=1, labels={TIER: name}, annotations=FORGED, **SIZE))
            assert not forged_on(made)
            wait_bound(cluster, mine, name)
            for key in LATER:
                patched = attacker.kubectl("annotate", "pod", name, f"{key}={FORGED[key]}")
                assert "ProtectedKeyChanged" in patched.stderr
            assert not forged_on(get_pod(cluster, mine, name))
            assert "2999" not in explain(fairgate, f"pod/{name}", "-n", mine).stdout
        web = deployment("web", 1, gpus=1)
        web["spec"]["template"]["metadata"]["annotations"] = FORGED
        assert attacker.create(web).returncode == 0
        wait_for(cluster, lambda: len(alive(cluster, mine)) == 3, what="the Deployment has its pod")
        assert not any(map(forged_on, list_pods(cluster, mine)))
        for annotations in ({key: FORGED[key]} for key in LATER):
            done = attacker.create(pod("no-gpus", annotations=annotations))
            assert "ProtectedKeyChanged" in done.stderr


def texts_of(cluster, namespace):
    """All that Fairgate wrote for the people of a namespace: its Events, and annotations of pods."""
    for event in cluster.api.list(f"/api/v1/namespaces/{namespace}/events"):
        if event["source"].get("component", "").startswith("fairgate"):
            yield event["message"]
    for found in list_pods(cluster, namespace):
        yield from (value for key, value in found["metadata"].get("annotations", {}).items() if "fairgate.dev" in key)


@pytest.mark.cluster
@pytest.mark.standing
def test_no_event_or_annotation_names_pods_of_another_team(cluster):
    """Borrowers are announced and evicted, under a limit and on nodes, while pods wait in line and are refused."""
    make_nodes(cluster, 2)
    policy = f"{QUEUES}reclaim: {{notice: 1s}}\n"
    with serve_fairgate(cluster, policy=policy) as fairgate, department(fairgate) as spaces, evictor(fairgate):
        nlp, vision = spaces["nlp"], spaces["vision"]
        fill(cluster, nlp, 10, prefix="secret-nlp")
        wait_bound(cluster, nlp, *alive(cluster, nlp))
        create_pod(cluster, nlp, pod("secret-nlp-waits", gpus=4, **SIZE))
        create_pod(cluster, vision, pod("secret-vision", gpus=4, **SIZE))
        wait_bound(cluster, vision, "secret-vision")
        create_pod(cluster, vision, pod("secret-vision-waits", gpus=8, **SIZE))
        reasons = lambda: {each["reason"] for each in cluster.api.list(f"/api/v1/namespaces/{nlp}/events")}  # noqa: E731
        wait_for(cluster, lambda: {"EvictionPlanned", "Reclaimed", "Queued"} <= reasons(), what="both were told")
        about = {space: list(texts_of(cluster, space)) for space in (nlp, vision)}
        assert about[nlp]
        assert about[vision]
        assert not [text for text in about[nlp] if "secret-vision" in text]
        assert not [text for text in about[vision] if "secret-nlp" in text]
