"""Names that could be swapped by mistake, each with a type of its own."""

from typing import NewType

TeamName = NewType("TeamName", str)
DepartmentName = NewType("DepartmentName", str)
PoolName = NewType("PoolName", str)
NodeName = NewType("NodeName", str)
Namespace = NewType("Namespace", str)
Uid = NewType("Uid", str)
User = NewType("User", str)
ResourceName = NewType("ResourceName", str)
GpuModel = NewType("GpuModel", str)
Labels = NewType("Labels", str)  # packed into one string
GangId = NewType("GangId", str)
"""Pods that need each other: namespace, marker and value."""
WorkloadName = NewType("WorkloadName", str)
"""Equal pods that replace each other: the namespace, the kind and the name of the object that a person scales, and the
role or group of its pods where it has several."""

CPU = ResourceName("cpu")
MEMORY = ResourceName("memory")
PODS = ResourceName("pods")
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource name under which Kubernetes counts the devices of a DeviceClass (KEP-5004)."""
HOST_PORT = "host port "
"""Prefix of a resource of which every node has one, and one pod takes it: `host port 8080 (TCP)`."""
ANY_MODEL = GpuModel("*")
"""The model of a pod that may still end on any model: it counts towards the limit of each. No label has this value."""
UNASSIGNED = TeamName("unassigned")
"""The team of namespaces without a team, under `unknownTeam: preemptible`."""
