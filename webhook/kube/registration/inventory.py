"""Every object of a cluster that is Fairgate's own: what `fairgate manifests`, the chart and the processes create.

`fairgate uninstall` removes them by this list. Tests compare it with what is printed, rendered and written.
"""

from dataclasses import dataclass
from typing import Any, Final

from webhook.kube.ledger import reports
from webhook.kube.ledger.report_crd import report_crd
from webhook.kube.ledger.team_ledger_crd import team_ledger_crd
from webhook.kube.objects import keys
from webhook.kube.registration.held_nodes import held_nodes_crd
from webhook.kube.registration.installation import CONFIGURATIONS
from webhook.kube.registration.kind_rights import kind_roles
from webhook.kube.registration.registration_sync import GUARD, PLURALS
from webhook.kube.registration.viewer_role import GUARDS, viewer_role

_PLURALS: Final = {
    **PLURALS,
    "CustomResourceDefinition": "customresourcedefinitions",
    "ClusterRole": "clusterroles",
    "Lease": "leases",
    "Secret": "secrets",
    keys.HELD_NODES_KIND: keys.HELD_NODES,
}


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """An object of Fairgate; a cluster-scoped one has no namespace."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def group(self) -> str:
        """Its API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def plural(self) -> str:
        """The plural of its kind, as in URLs and in RBAC."""
        return _PLURALS[self.kind]

    @property
    def path(self) -> str:
        """Its API path."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        namespace = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{namespace}/{self.plural}/{self.name}"

    @property
    def text(self) -> str:
        """Kind and name, with the namespace if there is one."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def definitions() -> list[dict[str, Any]]:
    """Return the definitions of Fairgate's kinds."""
    return [team_ledger_crd(), report_crd(), held_nodes_crd()]


def roles() -> list[dict[str, Any]]:
    """Return the ClusterRoles that `fairgate manifests` prints."""
    return [viewer_role(), *kind_roles()]


WEBHOOKS: Final = tuple(OwnedObject(keys.REGISTRATION_API, kind, name) for kind, name in reversed(CONFIGURATIONS))
"""In the order of removal: a pod that is validated and was not mutated is refused until it is created again."""

REGISTERED_GUARDS: Final = tuple(
    OwnedObject(keys.REGISTRATION_API, kind, name) for kind in (f"{GUARD}Binding", GUARD) for name in GUARDS
)
"""In the order of removal: a guard without a binding refuses nothing."""

DEFINITIONS: Final = tuple(
    OwnedObject(made["apiVersion"], made["kind"], made["metadata"]["name"])
    for made in sorted(definitions(), key=lambda made: made["spec"]["names"]["kind"] == keys.REPORT)
)
"""In the order of removal, each with its objects: Reports say which processes run, so they are removed last."""

HELD_ROOM: Final = OwnedObject(keys.OWN_API, keys.HELD_NODES_KIND, keys.HELD_NODES_NAME)
PROCESS_REPORT: Final = f"{reports.PATH}/{reports.REPLICAS}"

ROLES: Final = tuple(OwnedObject(made["apiVersion"], made["kind"], made["metadata"]["name"]) for made in roles())


def leases(namespace: str) -> tuple[OwnedObject, ...]:
    """Return the Leases of servers and evictors in a namespace."""
    return tuple(
        OwnedObject(keys.LEASE_API, "Lease", name, namespace) for name in (keys.SERVER_LEASE, keys.EVICTOR_LEASE)
    )


def certificates(namespace: str, name: str) -> OwnedObject:
    """Return the Secret in which `fairgate serve --certs-secret` keeps its certificates."""
    return OwnedObject(keys.CORE_API, "Secret", name, namespace)


LEFT: Final = (
    "labels team and tier, annotation decision, node affinity and tolerations of existing pods: they have no effect, "
    "and a Fairgate that is installed again continues with them",
    "annotations and podFailurePolicy of workloads, labels of namespaces: made by their users, or part of a template",
    "Events: they expire by themselves",
    "recorded usage (PersistentVolumeClaims, files) and the policy: delete them when you no longer need them",
    "the Secret with the certificates, unless --certs-secret names it",
    "Deployments, StatefulSets, Services and ServiceAccounts: `helm uninstall` removes what helm installed",
    "files of `fairgate manifests --static` on the hosts of API servers, and their AdmissionConfiguration",
)
"""What is left on purpose, for people."""
