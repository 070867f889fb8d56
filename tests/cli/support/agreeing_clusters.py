"""Clusters that grow pod by pod by the webhook's own answers, and what the webhook says of one more pod."""

import base64
import json
import re
from typing import NamedTuple

import jsonpatch
import msgspec
from hypothesis import strategies as st

from tests import builders as b
from webhook.cli.review.answers import answer_reviews
from webhook.cli.review.results import Place
from webhook.cli.world_source import WorldObjects, world_of
from webhook.core.explain.team_rows import ledger_row
from webhook.core.model.node import Autoscaler
from webhook.core.quota.charges import LedgerRecord, flight_of
from webhook.core.starting.awaited_room import awaiting
from webhook.core.starting.starts import AssumedStarts
from webhook.kube.ledger.team_ledger import encode
from webhook.kube.nodes.nodes import MIG_STATE, objects_of
from webhook.kube.objects import keys
from webhook.policy.watch import parse

NOW = 1_795_600_000
USER = "ann"
SHARED = "nvidia.com/gpu.shared"
TEAMS = ("red", "blue")
_PLACE = re.compile(r"(\d[\d,]*)(?:st|nd|rd|th) in the queue")
_CODE = re.compile(r"\(([A-Z][A-Za-z]+)\)")


class Said(NamedTuple):
    """What becomes of a pod: its tier and first node if it is admitted, the codes if not, and its place in line."""

    outcome: str
    tier: str | None = None
    node: str | None = None
    codes: tuple[str, ...] = ()
    place: int = 0


# -- clusters


class Asked(NamedTuple):
    """A pod that someone creates. `gang` is the size of its gang, 0 for none; `is_grouped`: that is a PodGroup.

    `is_idle`: on a node it does not use its GPUs. `pin` is the number of the one node that it may use.
    """

    team: str
    gpus: int
    is_shared: bool = False
    tier: str | None = None
    gang: int = 0
    is_gone: bool = False
    is_grouped: bool = False
    is_idle: bool = False
    pin: int | None = None


class Setup(NamedTuple):
    """A policy, the nodes' sizes, the pods that come one after the other, and the one that is asked about.

    `grows`: Karpenter brought the nodes. `measures_use`: what follows for pods that do not use their GPUs. With
    `is_strict` no pod passes one that waits for a limit, with `is_brief` one without room holds back no other.
    `is_charged`: the leader has charged the pods whose room is to be taken back, which keep their gates.
    """

    shares: tuple[tuple[int, int], ...]
    lab: int
    per_user: int
    queues: tuple[bool, bool]
    depth: int
    nodes: tuple[int, ...]
    closed: dict[int, str]
    before: tuple[Asked, ...]
    asked: Asked
    grows: bool = False
    measures_use: bool = False
    is_strict: bool = False
    is_brief: bool = False
    is_charged: bool = False


_asked = st.builds(
    Asked,
    team=st.sampled_from([*TEAMS, *TEAMS, *TEAMS, "stray"]),
    gpus=st.integers(1, 5),
    is_shared=st.sampled_from([False, False, False, True]),
    tier=st.sampled_from([None, None, None, "guaranteed", "preemptible"]),
    gang=st.sampled_from([0, 0, 0, 2, 3]),
    is_gone=st.sampled_from([False, False, True]),
    is_grouped=st.booleans(),
    is_idle=st.booleans(),
    pin=st.sampled_from([None, None, None, 0, 1, 9]),
)
setups = st.builds(
    Setup,
    shares=st.tuples(*[st.tuples(st.integers(0, 6), st.integers(0, 6))] * 2),
    lab=st.sampled_from([0, 4, 8, 12]),
    per_user=st.sampled_from([0, 0, 3]),
    queues=st.tuples(st.booleans(), st.booleans()),
    depth=st.sampled_from([1, 3, 100]),
    nodes=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3).map(tuple),
    closed=st.dictionaries(st.integers(0, 2), st.sampled_from(["held", "cordoned", "maintained"]), max_size=2),
    before=st.lists(_asked, max_size=7).map(tuple),
    asked=_asked,
    grows=st.sampled_from([False, False, True]),
    measures_use=st.booleans(),
    is_strict=st.booleans(),
    is_brief=st.booleans(),
    is_charged=st.booleans(),
)


def policy_of(setup):
    at_limit, without_room = setup.queues
    waits = {"onLimit": "queue" if at_limit else "reject", "onNoRoom": "queue" if without_room else "wait"}
    teams = []
    for name, (guaranteed, more) in zip(TEAMS, setup.shares, strict=True):
        team = {"name": name, "namespaces": [name], "gpus": {"guaranteed": guaranteed, "limit": guaranteed + more}}
        team |= {"perUser": {"limit": setup.per_user}} if setup.per_user else {}
        teams.append(team | ({"department": "lab"} if setup.lab else {}))
    text = {
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Policy",
        "teams": teams,
        "resources": {SHARED: {"gpus": "1/4"}},
        "defaults": waits,
        "queue": {
            "depth": setup.depth,
            "strictAfter": "0s" if setup.is_strict else "10m",
            "holdBack": "0s" if setup.is_brief else "24h",
        },
    }
    if setup.measures_use:
        source = {"prometheus": {"url": "http://p:9090"}, "series": {"job": "dcgm"}}
        text["idle"] = source | {"actions": ["prefer", "demote"]}
    if setup.lab:
        guaranteed = sum(share for share, _ in setup.shares)
        text["departments"] = [{"name": "lab", "gpus": {"guaranteed": guaranteed, "limit": max(setup.lab, guaranteed)}}]
    return parse({"policy": json.dumps(text).encode()}, origin="policy")


NO_TEAMS = parse(
    {"p": b"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nresources: {%s: {gpus: '1/4'}}" % SHARED.encode()},
    origin="p",
)


def node_of(number, gpus, *, grows, closed=None):
    labels = {"karpenter.sh/nodepool": "cloud"} if grows else {}
    made = b.node(f"n{number}", gpus=gpus, labels=labels, is_cordoned=closed == "cordoned")
    made["status"]["allocatable"][SHARED] = "8"
    if closed == "held":
        made["spec"]["taints"] = [{"key": keys.HELD, "value": "h", "effect": "NoSchedule"}]
    if closed == "maintained":
        made["metadata"]["labels"][MIG_STATE] = "pending"
    return made


def manifest_of(asked, name):
    resource = SHARED if asked.is_shared else b.GPU
    labels = {} if asked.tier is None else {keys.TIER: asked.tier}
    annotations = {}
    place = {} if asked.pin is None else {"nodeSelector": {"kubernetes.io/hostname": f"n{asked.pin}"}}
    grouped = {"schedulingGroup": {"podGroupName": f"g{asked.gang}"}} if asked.gang and asked.is_grouped else {}
    if asked.gang:
        labels |= {} if grouped else {"kueue.x-k8s.io/pod-group-name": f"g{asked.gang}"}
        annotations["kueue.x-k8s.io/pod-group-total-count"] = str(asked.gang)
    made = b.pod(
        name,
        namespace=asked.team,
        labels=labels,
        annotations=annotations,
        containers=[b.container(gpus=asked.gpus, resource=resource, cpu="1", memory="1Gi")],
        **grouped,
        **place,
    )
    made["metadata"].pop("uid", None)
    return made


class Cluster:
    """The objects of a cluster under one policy. Each surface reads them into a world of its own."""

    def __init__(self, setup):
        self.policy = policy_of(setup)
        self.objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (*TEAMS, "stray")
        ]
        self.objects += objects_of({Autoscaler.KARPENTER} if setup.grows else (), at=NOW)
        self.objects += [node_of(number, gpus, grows=setup.grows) for number, gpus in enumerate(setup.nodes)]
        for number, asked in enumerate(setup.before):
            manifest = manifest_of(asked, f"p{number}")
            said, stored, _ = self.webhook(manifest)
            if said.outcome != "refused":
                self.add(stored, said, number, is_idle=asked.is_idle)
        gone = {f"p{number}" for number, asked in enumerate(setup.before) if asked.is_gone}
        self.objects = [each for each in self.objects if each["metadata"]["name"] not in gone]
        for number, why in setup.closed.items():
            if number < len(setup.nodes):
                place = next(i for i, each in enumerate(self.objects) if each["metadata"]["name"] == f"n{number}")
                self.objects[place] = node_of(number, setup.nodes[number], grows=setup.grows, closed=why)

        if setup.is_charged:
            self.charge()

    def charge(self):
        """Have the leader charge the pods whose room reclaim is to make."""
        world = self.world()
        found = {}
        for turn in AssumedStarts(self.world()).due(now=NOW, count=100):
            if turn.takes_back:
                pod = turn.waiting.pod._replace(demand=turn.admit.demand)
                flight = flight_of(pod, turn.admit.charge, nodes=turn.admit.node_choice.nodes)
                found.setdefault(turn.admit.charge.team, {})[pod.uid] = awaiting(flight)
        for team, flights in found.items():
            self.objects.append(json.loads(encode(LedgerRecord(flights), ledger_row(team, world), version=0)))

    @property
    def reading(self):
        return WorldObjects(tuple(self.objects), read_at=NOW)

    def world(self):
        return world_of(self.reading, self.policy, name="w")

    def add(self, stored, said, number, *, is_idle=False):
        """Store a pod as the API server does, and bind it where the webhook sent it."""
        stored["metadata"] |= {
            "uid": f"uid-{stored['metadata']['name']}",
            "creationTimestamp": f"2026-11-25T10:00:{number:02}Z",
        }
        if said.node is not None:
            stored["spec"]["nodeName"] = said.node
            stored["status"] = {"phase": "Running"}
            if is_idle:
                stored["metadata"]["annotations"][keys.IDLE_SINCE] = "2026-11-25T10:30:00Z"
        else:
            stored["status"] = {"phase": "Pending"}
        self.objects.append(stored)

    def webhook(self, manifest):
        """What the webhook says, the pod as it would be stored, and the message of a refusal."""
        request = msgspec.json.decode(b.review(manifest, namespace=manifest["metadata"]["namespace"], username=USER))
        problems = []
        [answer] = answer_reviews(
            [(Place("m", 1, 1), request)],
            self.world(),
            room_is_known=True,
            now_text="2026-11-25T11:00:00Z",
            on_problem=lambda _, text: problems.append(text),
        )
        assert problems == []
        response = answer["response"]
        if not response["allowed"]:
            message = response["status"]["message"]
            return Said("refused", codes=codes_in(message)), manifest, message
        patch = json.loads(base64.b64decode(response["patch"]))
        stored = jsonpatch.apply_patch(manifest, patch)
        return self.stored(stored), stored, ""

    def stored(self, pod):
        """What a pod as it is stored says was decided."""
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        decision = json.loads(annotations[keys.DECISION])
        if any(gate["name"] == keys.QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ())):
            [place] = _PLACE.findall(annotations[keys.WAITING])
            return Said("queued", codes=(decision["code"],), place=int(place))
        return Said("admitted", labels[keys.TIER], first_choice(pod), (decision["code"],))


def first_choice(pod):
    """The node that is preferred most, or the only one that is required."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
        return each["preference"]["matchFields"][0]["values"][0]
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    names = [values for term in terms for field in term.get("matchFields", ()) for values in field["values"]]
    return names[0] if names else None


def codes_in(message):
    return tuple(sorted(_CODE.findall(message)))
