"""What Helm and manifests install.

How held nodes are reported to the API server: the definition of HeldNodes, and the content of its one object.

A guard of bindings reads it (guards.py): the object must stay small and be found by its name, since the API
server reads it for every binding.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.policy import LabelSelector, Policy
from webhook.core.model.policy_addons import IdleAction
from webhook.core.reclaim.holds import HeldNodes
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import definition, report_crd
from webhook.kube.ledger.team_ledger import team_ledger_crd
from webhook.kube.objects import keys
from webhook.kube.registration.guards import FORGED, GUARDS
from webhook.kube.registration.inventory import CONFIGURATIONS, GUARD, PLURALS, pod_with_limits
from webhook.kube.registration.registration import GLOB, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION, pattern_of
from webhook.kube.workloads.unknown_kinds import SCALER_API, SCALERS

_Json = dict[str, Any]


def held_nodes_crd() -> _Json:
    """Return the definition."""
    return definition(keys.HELD_NODES_KIND, keys.HELD_NODES, _schema())


def create_body(held: HeldNodes) -> bytes:
    """Return the object, to create it."""
    metadata = {"name": keys.HELD_NODES_NAME, "labels": dict(keys.OWN_LABELS)}
    made = {"apiVersion": keys.OWN_API, "kind": keys.HELD_NODES_KIND, "metadata": metadata, "spec": _spec(held)}
    return msgspec.json.encode(made)


def replace_patch(held: HeldNodes) -> bytes:
    """Return a JSON patch by which the object states this and nothing else."""
    return msgspec.json.encode([{"op": "add", "path": "/spec", "value": _spec(held)}])


def _spec(held: HeldNodes) -> _Json:
    return {
        "nodes": {node: list(uids) for node, uids in sorted(held.nodes.items())},
        "namespaces": [name for name in held.namespaces if not GLOB & set(name)],
        "namespacePatterns": [pattern_of(name) for name in held.namespaces if GLOB & set(name)],
        "namespaceSelectors": [_selector(each) for each in held.selectors],
        "exemptPatterns": [pattern_of(name) for name in held.exempt],
    }


def _selector(selector: LabelSelector) -> list[_Json]:
    return [
        {"key": each.key, "operator": each.operator.value, "values": list(each.values)}
        for each in selector.requirements
    ]


def _schema() -> _Json:
    texts = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    requirement = {
        "type": "object",
        "required": ["key", "operator", "values"],
        "properties": {"key": {"type": "string"}, "operator": {"type": "string"}, "values": texts},
    }
    selectors = {"type": "array", "items": {"type": "array", "items": requirement}, "x-kubernetes-list-type": "atomic"}
    spec = {
        "type": "object",
        "required": ["nodes", "namespaces", "namespacePatterns", "namespaceSelectors", "exemptPatterns"],
        "properties": {
            "nodes": {
                "type": "object",
                "description": "By the name of a node, the UIDs of the pods that it keeps its room for.",
                "additionalProperties": texts,
                "x-kubernetes-map-type": "atomic",
            },
            "namespaces": {**texts, "description": "Namespaces whose other pods are not bound to these nodes."},
            "namespacePatterns": {**texts, "description": "The same as regular expressions of their names."},
            "namespaceSelectors": {**selectors, "description": "The same by their labels."},
            "exemptPatterns": {**texts, "description": "Namespaces whose pods are bound in any case."},
        },
        "x-kubernetes-map-type": "atomic",
    }
    return {
        "type": "object",
        "description": "The nodes that keep their room. Written by the evictor only; delete it if no evictor runs.",
        "required": ["spec"],
        "properties": {"spec": spec},
    }


# The rights that Fairgate needs for kinds of workloads, by their rows.


_Rules = list[dict[str, Any]]


class Component(StrEnum):
    """The components that read workloads."""

    SERVER = "server"
    EVICTOR = "evictor"


NOTEBOOKS: Final[dict[str, Any]] = {"apiGroups": ["kubeflow.org"], "resources": ["notebooks"], "verbs": ["patch"]}
"""The right to stop Notebooks, for policies that evict pods which do not use their GPUs."""


def stops_notebooks(policy: Policy) -> bool:
    """Whether a policy evicts pods that do not use their GPUs, of any team."""
    return any(IdleAction.EVICT in policy.on_idle(team.name) for team in policy.teams)


def kind_rules(component: Component) -> _Rules:
    """Return the RBAC rules of a component: to read what makes pods, and to annotate or watch it."""
    scalers = {"apiGroups": [SCALER_API.partition("/")[0]], "resources": [SCALERS], "verbs": ["list", "watch"]}
    owners = [row for row in BUILT_IN if row.is_intermediate and row.kind.kind != "Pod"]
    if component is Component.EVICTOR:
        failing = (row for row in BUILT_IN if row.failures is not None)
        return [*_rules(owners, ["get"]), *_rules(failing, ["list", "watch"]), scalers]
    described = [row for row in BUILT_IN if row.gang.marker or row.gang.of_controller]
    retried = (row for row in BUILT_IN if row.is_retried)
    return [*_rules([*owners, *described], ["get"]), *_rules(retried, ["patch"]), scalers]


def kind_roles(policy: Policy | None = None) -> list[dict[str, Any]]:
    """Return a ClusterRole with these rules for each component, and with what a policy needs besides."""
    more = {Component.EVICTOR: [NOTEBOOKS]} if policy is not None and stops_notebooks(policy) else {}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"fairgate-{component}-kinds", "labels": dict(keys.OWN_LABELS)},
            "rules": [*kind_rules(component), *more.get(component, ())],
        }
        for component in Component
    ]


def _rules(rows: Iterable[Row], verbs: list[str]) -> _Rules:
    resources: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        resources[row.kind.group].add(row.kind.resource)
    return [
        {"apiGroups": [group], "resources": sorted(names), "verbs": list(verbs)}
        for group, names in sorted(resources.items())
    ]


# Other products that queue or place pods, known by their API groups or by the names of their webhooks.


_SIGNS: Final = {
    "kueue.x-k8s.io": "Kueue",
    "scheduling.volcano.sh": "Volcano",
    "scheduling.run.ai": "KAI-Scheduler",
    "kai.scheduler": "KAI-Scheduler",
    # webhooks: these have no API group, and their charts let admins rename the configurations
    "vgpu.hami.io": "HAMi",
    "admission-webhook.yunikorn.mutate-pods": "YuniKorn",
}

PRODUCTS: Final = tuple(dict.fromkeys(_SIGNS.values()))


def products_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the products that API groups and webhooks of these names belong to."""
    return tuple(dict.fromkeys(product for sign, product in _SIGNS.items() if sign in names))


def section_of(product: str) -> str:
    """Return where the docs say how to use a product together with Fairgate."""
    return f"docs/tasks/coexistence.md#{product.lower()}"


# Registration by files that kube-apiserver reads (`staticManifestsDir`, Kubernetes 1.37): no API request changes it.
#
# Names end with a suffix that the API refuses, webhooks have a URL, and policies take no parameters, so the guards of
# held room stay objects. Each admission plugin reads a folder of its own
# (https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5793-manifest-based-admission-control-config).


SUFFIX: Final = ".static.k8s.io"
DEFAULT_FOLDER: Final = "/etc/kubernetes/fairgate"
CONFIGURATION_FILE: Final = "admission.yaml"
_DOMAIN: Final = f".static.{keys.OWN_GROUP}"
_CONFIG_API: Final = "apiserver.config.k8s.io/v1"
_PLUGINS: Final = {
    "MutatingAdmissionWebhook": ("mutating-webhooks", "WebhookAdmissionConfiguration"),
    "ValidatingAdmissionWebhook": ("validating-webhooks", "WebhookAdmissionConfiguration"),
    GUARD: ("validating-policies", f"{GUARD}Configuration"),
}
"""The folder that each plugin reads, and the kind of its configuration."""
_FOLDERS: Final = {
    "MutatingWebhookConfiguration": "mutating-webhooks",
    "ValidatingWebhookConfiguration": "validating-webhooks",
    GUARD: "validating-policies",
    f"{GUARD}Binding": "validating-policies",
}


class _Named(msgspec.Struct):
    name: str


class _Webhook(_Named, rename="camel"):
    client_config: _Json


class _WebhookFields(msgspec.Struct):
    metadata: _Named
    webhooks: list[_Webhook]


class _GuardFields(msgspec.Struct):
    metadata: _Named
    spec: _Json


def static_files(registered: Iterable[_Json]) -> dict[str, list[_Json]]:
    """Return the objects of each file, by its path in the folder, for webhook configurations and guards.

    A folder without objects gets a file without content: kube-apiserver then has no more of what was there before.
    """
    files: dict[str, list[_Json]] = {f"{folder}/fairgate.yaml": [] for folder, _ in _PLUGINS.values()}
    for each in registered:
        if can_be_static(each):
            files[f"{_FOLDERS[each['kind']]}/fairgate.yaml"].append(
                _renamed(each, name=lambda name: f"{name}{SUFFIX}", webhook=_static_name)
            )
    return files


def objects_of(documents: Iterable[object]) -> list[_Json]:
    """Return what the documents of such files register, by the names that it has as objects of the API.

    Raises msgspec.ValidationError where one has no name or no content.
    """
    registered = [each for each in documents if isinstance(each, dict) and each.get("kind") in _FOLDERS]
    for each in registered:
        msgspec.convert(each, _WebhookFields if "Webhook" in each["kind"] else _GuardFields)
    return [_renamed(each, name=lambda name: name.removesuffix(SUFFIX), webhook=_usual_name) for each in registered]


def can_be_static(registered: _Json) -> bool:
    """Whether kube-apiserver takes an object from a file: it takes no policy with parameters, and no binding of one."""
    return not {"paramKind", "paramRef"} & registered.get("spec", {}).keys()


def admission_configuration(folder: str) -> _Json:
    """Return the file for `--admission-control-config-file` by which plugins read their part of a folder."""
    return {
        "apiVersion": _CONFIG_API,
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": plugin,
                "configuration": {
                    "apiVersion": _CONFIG_API,
                    "kind": kind,
                    "staticManifestsDir": f"{folder}/{part}",
                },
            }
            for plugin, (part, kind) in _PLUGINS.items()
        ],
    }


def _renamed(registered: _Json, *, name: Callable[[str], str], webhook: Callable[[str], str]) -> _Json:
    metadata = registered["metadata"]
    named = {**registered, "metadata": {**metadata, "name": name(metadata["name"])}}
    if "webhooks" in registered:
        named["webhooks"] = [{**each, "name": webhook(each["name"])} for each in registered["webhooks"]]
    elif "policyName" in registered["spec"]:
        named["spec"] = {**registered["spec"], "policyName": name(registered["spec"]["policyName"])}
    return named


def _static_name(webhook: str) -> str:
    """Return the name of a webhook of a file: refusals name the webhook, so they say how it was registered."""
    return f"{webhook.removesuffix(f'.{keys.OWN_GROUP}')}{_DOMAIN}"


def _usual_name(webhook: str) -> str:
    return f"{webhook.removesuffix(_DOMAIN)}.{keys.OWN_GROUP}"


# -- what an API server says of itself


class StaticRegistration(NamedTuple):
    """Whether the API server that answered has the mutating webhook and the guards by files, as far as it shows."""

    webhooks: bool = False
    guards: bool = False


NOT_STATIC: Final = StaticRegistration()


def pod_for_webhook(resource: str) -> _Json:
    """Return a pod that Fairgate refuses under every policy that counts a resource, as does the API server."""
    return pod_with_limits({resource: "-1"})


def pod_for_guard() -> _Json:
    """Return a pod that a guard refuses under every enforced policy: it has no GPU, and claims to be of a team."""
    return pod_with_limits({}, labels={keys.TEAM: "none"})


def static_registration(*, by_webhook: str, by_guard: str) -> StaticRegistration:
    """Return how Fairgate is registered, by the API server's refusals of the two pods above."""
    return StaticRegistration(
        webhooks=f'{_DOMAIN}" denied the request' in by_webhook, guards=f"{FORGED}{SUFFIX}" in by_guard
    )


# The ClusterRole for read access to what Fairgate publishes and to its registration.


def viewer_role() -> _Json:
    """Return the role. It is aggregated to `view`, so users who may view the whole cluster may view this."""
    return {
        "apiVersion": keys.RBAC_API,
        "kind": "ClusterRole",
        "metadata": {
            "name": keys.VIEWER,
            "labels": {**dict(keys.OWN_LABELS), "rbac.authorization.k8s.io/aggregate-to-view": "true"},
        },
        "rules": [
            {
                "apiGroups": [keys.OWN_GROUP],
                "resources": [keys.TEAM_LEDGERS, keys.REPORTS],
                "verbs": ["get", "list", "watch"],
            },
            _registered(["mutatingwebhookconfigurations"], [MUTATING_CONFIGURATION]),
            _registered(["validatingwebhookconfigurations"], [VALIDATING_CONFIGURATION]),
            _registered(["validatingadmissionpolicies", "validatingadmissionpolicybindings"], list(GUARDS)),
        ],
    }


def _registered(resources: list[str], names: list[str]) -> _Json:
    return {"apiGroups": [keys.REGISTRATION_GROUP], "resources": resources, "resourceNames": names, "verbs": ["get"]}


# Every object of a cluster that is Fairgate's own: what `fairgate manifests`, the chart and the processes create.
#
# `fairgate uninstall` removes them by this list. Tests compare it with what is printed, rendered and written.


_PLURALS: Final = {
    **PLURALS,
    "CustomResourceDefinition": "customresourcedefinitions",
    "ClusterRole": "clusterroles",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "Lease": "leases",
    "Node": "nodes",
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


def roles(policy: Policy | None = None) -> list[dict[str, Any]]:
    """Return the ClusterRoles that `fairgate manifests` prints, with what a policy needs."""
    return [viewer_role(), *kind_roles(policy)]


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

HELD_ROOM_OBJECT: Final = OwnedObject(keys.OWN_API, keys.HELD_NODES_KIND, keys.HELD_NODES_NAME)
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
