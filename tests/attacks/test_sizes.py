"""Attacks of a namespace admin who pads a running pod until the API server can write nothing to it any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import MERGE_PATCH, STRATEGIC_PATCH, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.minors import at_least
from tests.control_plane.objects import pod
from tests.control_plane.workbench import make_nodes, wait_for, wait_phase
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

QUOTES = '"""' if at_least("1.32") else "EEE"  # before, no variable's name has quotes, which JSON doubles
APPLY = "application/apply-patch+yaml"
MIB = 1024 * 1024
Json = dict[str, Any]


def owner(name: str = "o", **more: object) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-of-{name[:20]}", **more}


def numbered(number: int, text: str = "x" * 50) -> list[str]:
    return [f"example.com/{text}-{n}" for n in range(number)]


METADATA: dict[str, Json] = {
    "the name of an owner": {"ownerReferences": [owner("o" * 1_400_000)]},
    "the UID of an owner": {"ownerReferences": [owner(uid="u" * 30_000)]},
    "many owners": {"ownerReferences": [owner(f"o-{n}", uid=f"u-{n}") for n in range(5_000)]},
    "finalizers": {"finalizers": numbered(10_000)},
    "labels": {"labels": dict.fromkeys(numbered(3_000), "y" * 60)},
    "keys of annotations": {"annotations": dict.fromkeys(numbered(800), "")},
}


def is_allowed(attempt: Callable[[], object]) -> bool:
    """Whether an attempt succeeds; if not, it must be for the size."""
    try:
        attempt()
    except ApiError as error:
        if "(TooLarge)" not in error.message:
            raise
        return False
    return True


class Padder:
    """A pod, and what its namespace's admin does to it."""

    def __init__(self, attacker: Attacker, name: str) -> None:
        self.attacker = attacker
        self.name = name
        self.path = f"/api/v1/namespaces/{attacker.namespace}/pods/{name}"

    def patch(self, body: object, *, at: str = "", kind: str = MERGE_PATCH, **query: str) -> None:
        self.attacker.api.patch(self.path + at, body, content_type=kind, **query)

    def refused(self, body: object, **more: str) -> str:
        with pytest.raises(ApiError) as caught:
            self.patch(body, **more)
        assert "(TooLarge)" in caught.value.message, caught.value.message
        return caught.value.message

    def may(self, body: object, **more: str) -> bool:
        """Try it."""
        return is_allowed(lambda: self.patch(body, **more))


def debugger(**fields: object) -> Json:
    return {"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.invalid/x:1", **fields}]}}


def assert_can_be_evicted(cluster: ControlPlane, path: str, *, keeps: bool = False) -> None:
    """The evictor and a kubelet can write to it, and it can be evicted. `keeps`: it has finalizers."""
    api = cluster.api
    # as long as a notice, which only Fairgate may write
    notice = {"metadata": {"annotations": {"fairgate.dev/waiting": "2026-01-01T00:00:00Z"}}}
    api.patch(path, notice, content_type=MERGE_PATCH)
    message = {"type": "Ready", "status": "False", "reason": "x", "message": "m" * 10_000}
    api.patch(f"{path}/status", {"status": {"conditions": [message]}}, content_type=STRATEGIC_PATCH)
    namespace, name = path.split("/")[4], path.rsplit("/", maxsplit=1)[-1]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    api.create(f"{path}/eviction", eviction)
    if keeps:
        wait_for(cluster, lambda: "deletionTimestamp" in api.get(path)["metadata"], what="it is evicted")
        api.patch(path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    wait_for(cluster, lambda: not api.exists(path), what="it is gone")


def test_a_pod_cannot_be_padded_until_no_one_can_evict_it(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        attacker = make_attacker(cluster, mine)
        rights = ("pods/ephemeralcontainers", "pods/resize", "pods/status", "pods/binding")
        cluster.kubectl("create", "role", "more", "--verb=*", f"--resource={','.join(rights)}", "-n", mine)
        cluster.kubectl("create", "rolebinding", "more", "--role=more", f"--user={attacker.user}", "-n", mine)
        attacker.create_pod(pod("p", gpus=1, labels={TIER: "preemptible"}, annotations={"note": "n" * 200_000}))
        wait_phase(cluster, mine, "p", "Running")
        padder = Padder(attacker, "p")
        padder.patch({"metadata": {"labels": {"mine": "yes"}, "finalizers": ["example.com/keep"]}})
        padder.patch({"metadata": {"finalizers": None}})
        for metadata in METADATA.values():
            padder.refused({"metadata": metadata})
            if "ownerReferences" not in metadata:
                padder.refused({"metadata": metadata}, at="/status")
        tolerations = [{"key": key, "operator": "Exists"} for key in numbered(1_000)]
        padder.refused({"spec": {"tolerations": tolerations}}, kind=STRATEGIC_PATCH)
        image = [{"name": "main", "image": f"example.invalid/{'x' * 200_000}:1"}]
        padder.refused({"spec": {"containers": image}}, kind=STRATEGIC_PATCH)
        for fields in (
            {"args": ["a" * MIB]},
            {"env": [{"name": "E", "value": "e" * MIB}]},
            {"env": [{"name": "E" * 100_000, "value": ""}]},
            {"workingDir": "/" + "w" * MIB},
            {"securityContext": {"seLinuxOptions": {"user": "u" * MIB}}},
            {"securityContext": {"capabilities": {"drop": ["C" * MIB]}}},
        ):
            padder.refused(debugger(**fields), at="/ephemeralcontainers", kind=STRATEGIC_PATCH)
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"mine": "yes"}}}
        for number in range(3):
            padder.patch(applied, kind=APPLY, fieldManager=f"m{number}", force="true")
        padder.refused(applied, kind=APPLY, fieldManager="m3", force="true")
        assert_can_be_evicted(cluster, padder.path)


def test_a_new_pod_that_would_leave_no_room_is_refused_and_a_large_one_is_not(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a)
        large = pod("large", gpus=1, annotations={"note": "n" * 100_000})
        large["spec"]["containers"][0]["env"] = [{"name": f"VARIABLE_{n}", "value": "v" * 40} for n in range(200)]
        attacker.create_pod(large)
        for metadata in METADATA.values():
            made = pod("p", gpus=1)
            made["metadata"] |= metadata
            assert "(TooLarge)" in refusal(attacker, made)
        named = pod("p", gpus=1)
        named["spec"]["containers"][0]["env"] = [{"name": QUOTES * 100 + str(n), "value": ""} for n in range(500)]
        assert "(TooLarge)" in refusal(attacker, named)
        # a controller creates what its template says
        template = {
            "metadata": {"labels": {"app": "p"}, "finalizers": numbered(10_000)},
            "spec": pod("p", gpus=1)["spec"],
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "p"}}, "template": template}
        attacker.api.create(
            f"/apis/apps/v1/namespaces/{fairgate.team_a}/replicasets",
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "p"}, "spec": spec},
        )
        events = f"/api/v1/namespaces/{fairgate.team_a}/events"
        wait_for(
            cluster,
            lambda: any("(TooLarge)" in each["message"] for each in cluster.api.list(events)),
            what="the ReplicaSet's pod is refused",
        )


def refusal(attacker: Attacker, made: Json) -> str:
    with pytest.raises(ApiError) as caught:
        attacker.create_pod(made)
    return caught.value.message


def test_the_largest_pod_that_is_allowed_can_still_be_evicted(cluster):
    """All that a tenant may add is added, as much of it as is allowed."""
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        attacker = make_attacker(cluster, mine)
        cluster.kubectl("create", "role", "more", "--verb=*", "--resource=pods/ephemeralcontainers", "-n", mine)
        cluster.kubectl("create", "rolebinding", "more", "--role=more", f"--user={attacker.user}", "-n", mine)
        made = pod("p", gpus=1, labels={TIER: "preemptible"})
        for count in range(2_000, 100, -100):
            made["spec"]["containers"][0]["env"] = [
                {"name": f"{QUOTES}{n:05}{'E' * 60}", "value": ""} for n in range(count)
            ]
            if is_allowed(lambda: attacker.create_pod(made)):
                break
        wait_phase(cluster, mine, "p", "Running")
        padder = Padder(attacker, "p")
        padder.patch({"metadata": {"annotations": {"note": "n" * 250_000}}})
        for number in range(600, 0, -20):
            if padder.may({"metadata": {"finalizers": numbered(number)}}):
                break
        assert number > 200
        for size in range(40_000, 0, -1_000):
            if padder.may(debugger(args=["\u20ac" * size]), at="/ephemeralcontainers", kind=STRATEGIC_PATCH):
                break
        assert size > 10_000
        spec = {"containers": [{"name": "main", "env": made["spec"]["containers"][0]["env"]}]}
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        applied["metadata"]["finalizers"] = numbered(number)
        for manager in range(3):
            padder.patch(applied, kind=APPLY, fieldManager=f"m{manager}", force="true")
        assert len(json.dumps(cluster.api.get(padder.path))) > 800_000
        assert_can_be_evicted(cluster, padder.path, keeps=True)
