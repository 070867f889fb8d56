"""What nodes offer, changed as kubelets report it, and the nodes that a pod would get then."""

from tests.builders import decision_of
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod


def asking(name, **limits):
    made = pod(name)
    made["spec"]["containers"][0]["resources"]["limits"] = limits
    return made


def chosen(cluster, namespace, made):
    """The nodes that a pod would get now, by a dry run; none if it never fits the nodes that the server has seen."""
    try:
        created = cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", made, dryRun="All")
    except ApiError as error:
        if "(NeverFits)" in error.message:
            return []
        raise
    return decision_of(created)["nodes"]


def offer(cluster, node, **amounts):
    status = {"allocatable": amounts, "capacity": amounts}
    cluster.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})
