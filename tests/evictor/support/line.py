"""A department at its limit on the fake API server, and pods of it that wait in line."""

import json

from tests import builders
from tests.core.support import make
from tests.core.support.departments import department
from tests.evictor.support.stage import PODS
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys


def tree(**more):
    """A department of four GPUs over team-a, which is guaranteed nothing, and team-b."""
    home = department("left", guaranteed=4, limit_=4)
    teams = (make.team(guaranteed=0, departments=(home,)), make.team("team-b", guaranteed=4, departments=(home,)))
    return make.policy(*teams, departments=(home,), **more)


def borrowed(stage, count=4):
    """Fill the department on one of two nodes."""
    for name in ("n0", "n1"):
        stage.node(name)
    for number in range(count):
        stage.borrower(f"a{number}", on="n0")


def in_line(stage, name="b", gpus=1, *, whole=0, **more):
    """A pod of team-b; of gang g, of which the leader wrote that it is whole with so many pods."""
    decision = {
        "demand": {builders.GPU: str(gpus)},
        "gpus": str(gpus),
        "mode": "queue",
        "nodes": [],
        "code": "WaitsForBorrowers",
        "policy": "p1",
        "user": "bob",
        "at": "then",
    }
    gang = {"kueue.x-k8s.io/pod-group-name": "g"} if whole else {}
    made = builders.pod(
        name,
        namespace="team-b",
        gpus=gpus,
        labels={keys.TEAM: "team-b", **gang},
        annotations={keys.DECISION: json.dumps(decision)} | ({keys.GANG_WHOLE: str(whole)} if whole else {}),
        schedulingGates=[{"name": keys.QUEUE_GATE}],
        **more,
    )
    meta = made.pop("metadata") | {"creationTimestamp": rfc3339(int(stage.now()))}
    return stage.api.put(PODS, name, namespace="team-b", metadata=meta, **made)["metadata"]["uid"]
