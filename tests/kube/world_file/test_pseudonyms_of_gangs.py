"""Gangs have the same pods under pseudonyms: operators name them by names that others begin with."""

import json
from collections import defaultdict

import msgspec

from tests import builders as b
from tests.kube.world_file.test_pseudonyms import POLICY
from webhook.kube.objects import keys
from webhook.kube.objects.objects import Pod
from webhook.kube.pod.existing import to_reclaim_pod
from webhook.kube.watched.kept_fields import kept_fields
from webhook.kube.world_file.pseudonyms import Pseudonyms, names_in_policy


def operated(name, kind, controller, labels=None, *, api="batch/v1", **annotations):
    owner = {"apiVersion": api, "kind": kind, "name": controller, "uid": f"secret-{controller}", "controller": True}
    made = b.pod(name, namespace="vision-secret", uid=name, labels=labels, annotations=annotations)
    made["metadata"]["ownerReferences"] = [owner]
    return made


def of_set(name, controller):
    return operated(name, "StatefulSet", controller, {keys.LWS_NAME: "secret-llm", keys.LWS_GROUP: name}, api="apps/v1")


RAY, TRAINING, SETS = ({key: "secret-x"} for key in (keys.RAY_CLUSTER, keys.KUBEFLOW_JOB, keys.JOBSET_NAME))
OF_GANGS = [
    *(operated(f"secret-ray-{n}", "RayCluster", "secret-x", RAY, api="ray.io/v1") for n in (1, 2)),
    operated("secret-mpi-1", "MPIJob", "secret-x", TRAINING, api="kubeflow.org/v1"),
    operated("secret-mpi-2", "Job", "secret-x-launcher", TRAINING),
    operated("secret-set-1", "Job", "secret-x-secret-workers-0", SETS),
    operated("secret-set-2", "Job", "secret-x-secret-driver-0", SETS),
    of_set("secret-llm-0", "secret-llm"),
    of_set("secret-llm-0-1", "secret-llm-0"),
    of_set("secret-llm-1", "secret-llm"),
    *(operated(f"secret-job-{n}", "Job", f"secret-{n % 2}", **{keys.GANG: "true"}) for n in range(4)),
    *(
        operated(f"secret-{n}", "Job", f"secret-volcano-{n}", **{keys.GANG_ANNOTATIONS[0]: f"secret-group-{n % 2}"})
        for n in range(3)
    ),
]


def gangs(found):
    """The places of the pods that start together, and of those that are evicted together."""
    read = [to_reclaim_pod(msgspec.json.decode(json.dumps(each), type=Pod), POLICY.resources) for each in found]
    starting, leaving = defaultdict(list), defaultdict(list)
    for place, each in enumerate(read):
        starting[each.gang].append(place)
        leaving[each.goes_with].append(place)
    return sorted(starting.values()), sorted(leaving.values())


def test_gangs_have_the_same_pods():
    names = Pseudonyms(names_in_policy(POLICY))
    found = [names.rewritten(kept_fields(each, annotations=frozenset())) for each in OF_GANGS]
    assert "secret" not in json.dumps(found)
    assert gangs(found) == gangs(OF_GANGS)
    assert len(gangs(OF_GANGS)[1]) >= 8
