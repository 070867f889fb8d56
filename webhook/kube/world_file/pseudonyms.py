"""Pseudonyms for the names in a world file: consistent, and without effect on decisions.

Names in the policy are kept, since the policy is shared with the world; a namespace that a glob in the policy selects
gets a name that the same glob selects. So teams, totals and limits stay the same. Label keys are kept, and the values
of labels that vendors and Kubernetes define.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from string import ascii_lowercase
from typing import Any, Final, TypeVar

from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import NODE_NAME_FIELD
from webhook.core.model.node import KeptPlace
from webhook.core.model.policy import Policy
from webhook.core.quota.usage import department_of
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget
from webhook.kube.ledger.team_ledger import object_name
from webhook.kube.nodes.holds import hold_text, parse_hold
from webhook.kube.objects import keys
from webhook.kube.pod.gangs import revision_of
from webhook.kube.pod.unbound import without_names

Json = Mapping[str, Any]

_Named = TypeVar("_Named", Beneficiary, EvictionTarget)
_HOSTNAME: Final = "kubernetes.io/hostname"
_KNOWN_DOMAINS: Final = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|x-k8s\.io|nvidia\.com|amd\.com|intel\.com|habana\.ai|google\.com|aws|azure\.com"
    r"|fairgate\.dev|karpenter\.sh|aliyun\.accelerator)$"
)
_OF_WORKLOADS: Final = re.compile(
    r"^(app|batch|statefulset)\.kubernetes\.io/|(^|\.)(x-k8s|(sigs|scheduling)\.k8s)\.io/"
)
"""Keys of labels in those domains whose values name a workload, a pod or a queue."""
_PARENTS: Final = (keys.RAY_CLUSTER, keys.KUBEFLOW_JOB, keys.JOBSET_NAME, keys.LWS_NAME)
"""Labels of operators with the name of a workload, with which the names of controllers and pods below it begin."""
_SUFFIX: Final = re.compile(r"-launcher|(-[0-9]+)*")
"""What operators add to such a name, and that names nothing."""
_UNIQUE: Final = frozenset({"uuid", "parentUUID", "pciBusID", "pcieRoot", "hostname"})
"""Attributes that identify a single device; no decision depends on them."""

_NAMED: Final = {
    "name": "part",
    "request": "part",
    "pool": "part",
    "device": "part",
    "counterSet": "part",
    "claimName": "persistentvolumeclaim",
    "podGroupName": "podgroup",
    "resourceClaimName": "resourceclaim",
    "resourceClaimTemplateName": "resourceclaimtemplate",
}
"""Fields of a spec that contain a name, and the kind of pseudonym; a request may name a subrequest after a slash."""

_PUBLIC: Final = frozenset({"DeviceClass", "CustomResourceDefinition", "ConfigMap"})
"""Kinds whose names say nothing of a cluster's users: a driver's, and those by which autoscalers are found."""

_TOLD: Final = (
    *(keys.GANG, keys.MOVABLE, keys.CHECKPOINTED, keys.EVICT_AT, keys.EVICT_FOR),
    *keys.GANG_SIZES,
    *keys.STAY_ANNOTATIONS,
)
"""Annotations that say a number, a time, a word or a team, and in which a tenant can write any text."""
_TIME: Final = re.compile(r"[0-9TZ:.+-]*")
_NUMBER_OR_WORD: Final = re.compile(r"[0-9.]*|true|false", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """The names in a policy: namespaces and globs, other names, keys of labels whose values it selects, and teams."""

    namespaces: frozenset[str]
    globs: tuple[str, ...]
    names: frozenset[str]
    label_keys: frozenset[str]
    user_keys: frozenset[str]
    teams: frozenset[str]


def names_in_policy(policy: Policy) -> PolicyNames:
    """Return the names in a policy."""
    entries = [entry for team in policy.teams for entry in team.namespaces]
    entries += [*policy.exempt, *policy.reclaim.protected_namespaces]
    pools = policy.pools
    selectors = [team.namespace_selector for team in policy.teams] + [pool.match for pool in pools]
    selectors += policy.reclaim.protected_selectors
    label_keys = {each.key for selector in selectors if selector is not None for each in selector.requirements}
    for pool in pools:
        label_keys |= {key for key, _ in pool.node_selector} | {each.key for each in pool.affinity}
        label_keys |= {each.key for each in pool.tolerations}
    return PolicyNames(
        frozenset(entry for entry in entries if "*" not in entry and "?" not in entry),
        tuple(entry for entry in entries if "*" in entry or "?" in entry),
        frozenset(policy.priority_classes.values()),
        frozenset(label_keys),
        frozenset(each.key for each in policy.defaults.user_from),
        frozenset(team.name for team in policy.teams),
    )


@dataclass(slots=True)
class Pseudonyms:
    """Assigns pseudonyms, numbered in the order in which names first appear."""

    kept: PolicyNames
    given: dict[tuple[str, str], str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str, name: object) -> str:
        """Return the pseudonym of a name; each kind has its own names. What is no text counts as it is written."""
        name = str(name)
        if not name or name in self.kept.names:
            return name
        known = self.given.get((kind, name))
        if known is None:
            number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
            known = self.given[kind, name] = f"{kind}-{number}"
        return known

    def namespace(self, name: object) -> str:
        """Return a pseudonym that the same policy entries select as the namespace; the name itself if there is none."""
        name = str(name)
        if not name or name in self.kept.namespaces:
            return name
        known = self.given.get(("namespace", name))
        if known is None:
            plain = self.of("namespace", name)
            matching = self._globs(name)
            number = plain.rpartition("-")[2]
            others = (f"{letter}-{number}" for letter in ascii_lowercase)
            choices = (plain, *(glob.replace("*", plain) for glob in matching), *others)
            known = next((choice for choice in choices if self._globs(choice) == matching), name)
            self.given["namespace", name] = known
        return known

    def _globs(self, name: str) -> tuple[str, ...]:
        return tuple(glob for glob in self.kept.globs if fnmatchcase(name, glob))

    def rewritten(self, found: Json) -> dict[str, Any]:
        """Return an object with pseudonyms; `found` must have only the fields that a world file keeps."""
        kind = found["kind"]
        made = dict(found)
        metadata = dict(found.get("metadata") or {})
        made["metadata"] = metadata
        name, labels = str(metadata.get("name", "")), metadata.get("labels")
        labels = labels if isinstance(labels, Mapping) else {}
        metadata["name"] = self._named(kind, name, labels)
        if metadata.get("namespace") and kind not in _PUBLIC:
            metadata["namespace"] = self.namespace(metadata["namespace"])
        if "uid" in metadata:
            metadata["uid"] = self.of("uid", metadata["uid"])
        if isinstance(metadata.get("ownerReferences"), list):
            metadata["ownerReferences"] = [
                each
                | {"name": self._owner(each, labels)}
                | ({"uid": self.of("uid", each["uid"])} if "uid" in each else {})
                for each in metadata["ownerReferences"]
                if isinstance(each, dict)
            ]
        if labels:
            metadata["labels"] = self._labels(labels)
        if isinstance(metadata.get("annotations"), Mapping):
            metadata["annotations"] = self._annotations(metadata["annotations"])
        if kind == keys.TEAM_LEDGER:
            return made | self._ledger(found)
        for part in ("spec", "status") if kind != "CustomResourceDefinition" else ():
            if isinstance(found.get(part), Mapping):
                made[part] = self._walk(found[part])
        return made

    def _team(self, name: object) -> str:
        """Return a team's name, which policy has, or a department's; another is that of a namespace that is gone."""
        name = str(name)
        return name if name in self.kept.teams or department_of(TeamName(name)) is not None else self.of("team", name)

    def _ledger(self, found: Json) -> dict[str, Any]:
        """Return the content of a TeamLedger with pseudonyms."""
        team = self._team((found.get("status") or {}).get("team", ""))
        entries = (found.get("ledger") or {}).get("inFlight") or ()
        return {
            "metadata": {"name": object_name(TeamName(team))},
            "status": {"team": team},
            "ledger": {"inFlight": [self._entry(each) for each in entries if isinstance(each, Mapping)]},
        }

    def _entry(self, entry: Json) -> dict[str, Any]:
        """Return a charge with pseudonyms; the identity of a gang follows from names, and is left out."""
        made = {key: value for key, value in entry.items() if key != "gang"}
        made |= {"ns": self.namespace(entry.get("ns", "")), "name": self.of("pod", entry.get("name", ""))}
        kinds = {"uid": "uid", "user": "user", "node": "node", "bound": "node"}
        made |= {key: self.of(kind, entry[key]) for key, kind in kinds.items() if entry.get(key) is not None}
        labels = entry.get("labels")
        made |= {"labels": self._labels(labels)} if isinstance(labels, Mapping) else {}
        made |= {"team": self._team(entry["team"])} if entry.get("team") else {}
        if entry.get("owner"):
            kind, _, name = str(entry["owner"]).partition("/")
            made["owner"] = f"{kind}/{self._owner({'kind': kind, 'name': name}, {})}"
        if isinstance(entry.get("claims"), list):
            made["claims"] = ["/".join(map(self._claim_part, str(each).split("/"))) for each in entry["claims"]]
        return made

    def _claim_part(self, name: str) -> str:
        return self.of("resourceclaim", name)

    def _owner(self, owner: Json, labels: Json) -> str:
        """Return the pseudonym of a controller, which still names its Deployment, or its workload of an operator."""
        kind, name = str(owner.get("kind", "owner")), str(owner.get("name", ""))
        revision = revision_of(kind, name, labels)
        if revision is None:
            return self._below(name, labels) or self.of(kind.lower(), name)
        return f"{self.of(revision.kind.lower(), revision.name)}-{self._label(revision.label, labels[revision.label])}"

    def _below(self, name: str, labels: Json) -> str:
        """Return the pseudonym of a name that begins with that of a workload, by an operator's label; else ""."""
        for key in _PARENTS:
            parent = labels.get(key)
            if parent and isinstance(parent, str) and (name == parent or name.startswith(f"{parent}-")):
                rest = name.removeprefix(parent)
                ending = rest if _SUFFIX.fullmatch(rest) else f"-{self.of('part', rest[1:])}"
                return f"{self._label(key, parent)}{ending}"
        return ""

    def _named(self, kind: str, name: str, labels: Json) -> str:
        if kind == "Namespace":
            return self.namespace(name)
        if kind in _PUBLIC:
            return name
        if kind == "PriorityClass":
            return self._class(name)
        return (keys.LWS_NAME in labels and self._below(name, labels)) or self.of(kind.lower(), name)

    def _class(self, name: object) -> str:
        name = str(name)
        return name if name.startswith("system-") else self.of("priority", name)

    def _labels(self, labels: Json) -> dict[str, str]:
        return {key: self._label(key, value) for key, value in labels.items()}

    def _label(self, key: str, value: Any) -> Any:  # noqa: ANN401 - a manifest may have any value here
        if not isinstance(value, str) or key in self.kept.label_keys or _NUMBER_OR_WORD.fullmatch(value):
            return value
        if key in {_HOSTNAME, NODE_NAME_FIELD}:
            return self.of("node", value)
        if key == keys.NAMESPACE_NAME:
            return self.namespace(value)
        if key in self.kept.user_keys:
            return self.of("user", value)
        domain, slash, _ = key.partition("/")
        is_public = slash and _KNOWN_DOMAINS.search(domain) and not _OF_WORKLOADS.search(key)
        return value if is_public else self.of("value", value)

    def _annotations(self, annotations: Json) -> dict[str, Any]:
        made = dict(annotations)
        for key in self.kept.user_keys & made.keys():
            made[key] = self.of("user", made[key])
        if keys.DECISION in made:
            made[keys.DECISION] = self._decision(made[keys.DECISION])
        if keys.HOLD in made:
            made[keys.HOLD] = self._hold(str(made[keys.HOLD]))
        for key in keys.GANG_ANNOTATIONS:
            if key in made:
                made[key] = self._label(key, str(made[key]))
        for key in _TOLD:
            text = str(made.get(key, ""))
            if not (text in self.kept.teams or _TIME.fullmatch(text) or _NUMBER_OR_WORD.fullmatch(text)):
                made[key] = self.of("value", text)
        for key in (keys.WAITING, keys.WAITING_FACTS):  # with names of holders
            made.pop(key, None)
        return made

    def _decision(self, annotation: str) -> str:
        """Return a decision annotation with pseudonyms; empty if it cannot be parsed, since it may contain any text."""
        try:
            decision = json.loads(annotation)
            if "user" in decision:
                decision["user"] = self.of("user", decision["user"])
            decision["nodes"] = [self.of("node", node) for node in decision["nodes"]]
            decision.pop("of", None)  # the pod's name
            return json.dumps(decision, separators=(",", ":"))
        except (ValueError, KeyError, TypeError):
            return ""

    def _hold(self, annotation: str) -> str:
        """Return the hold of a node with pseudonyms; empty if it cannot be parsed, since it may contain any text."""
        hold = parse_hold(annotation, NodeName(""))
        if hold is None:
            return ""
        beneficiaries, targets = map(self._renamed, hold.beneficiaries), map(self._renamed, hold.targets)
        return hold_text(
            replace(
                hold,
                beneficiaries=tuple(beneficiaries),
                targets=tuple(each._replace(beneficiary=self._uid(each.beneficiary), gang=None) for each in targets),
                places=tuple(map(self._place, hold.places)),
            )
        )

    def _renamed(self, pod: _Named) -> _Named:
        namespace, name = Namespace(self.namespace(pod.namespace)), self.of("pod", pod.name)
        return pod._replace(uid=self._uid(pod.uid), namespace=namespace, name=name)

    def _place(self, place: KeptPlace) -> KeptPlace:
        kind, _, controller = place.key.partition(" ")
        key = f"{kind} {self._within(kind.lower(), controller)}" if controller else self.of("uid", place.key)
        return place._replace(key=key, name=self._within("pod", place.name), replaces=self._uid(place.replaces))

    def _within(self, kind: str, named: str) -> str:
        """Return the pseudonym of a name with its namespace; "a pod of 8 nvidia.com/gpu" is none."""
        namespace, _, name = named.partition("/")
        return named if " " in namespace else f"{self.namespace(namespace)}/{self.of(kind, name)}"

    def _uid(self, uid: Uid) -> Uid:
        return Uid(self.of("uid", uid))

    def _walk(self, value: Any, under: str = "") -> Any:  # noqa: ANN401 - JSON values have no common type
        """Return a value with pseudonyms in selectors, affinity, taints and names, at any depth."""
        if isinstance(value, list):
            return [self.namespace(each) if under == "namespaces" else self._walk(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        if under in {"nodeSelector", "matchLabels"} and "nodeSelectorTerms" not in value:  # a claim's has terms
            return self._labels(value)
        made = {key: self._field(key, each) for key, each in value.items()}
        if isinstance(made.get("key"), str):
            if isinstance(made.get("values"), list):
                made["values"] = [self._label(made["key"], each) for each in made["values"]]
            if "value" in made:
                made["value"] = self._label(made["key"], made["value"])
        return made

    def _gate(self, name: str) -> str:
        return name if "/" in name and _KNOWN_DOMAINS.search(name.partition("/")[0]) else self.of("gate", name)

    def _reference(self, value: Json) -> Json:
        """Return a reference to a claim, by namespace and name, or to a workload, by kind and name."""
        if "namespace" not in value:
            return {**value, "name": self._owner(value, {})}
        claim = self.of(_NAMED["claimName"], value.get("name", ""))
        return {"namespace": self.namespace(value["namespace"]), "name": claim}

    def _field(self, key: str, value: Any) -> Any:  # noqa: ANN401 - JSON values have no common type
        if key == "conditions" and isinstance(value, list):
            return [each | {"message": without_names(each.get("message"))} for each in value if isinstance(each, dict)]
        if key == "attributes":
            return {name: each for name, each in value.items() if name.rpartition("/")[2] not in _UNIQUE}
        if key == "schedulingGates" and isinstance(value, list):
            return [each | {"name": self._gate(str(each.get("name", "")))} for each in value if isinstance(each, dict)]
        if key in {"claimRef", "scaleTargetRef"} and isinstance(value, Mapping):
            return self._reference(value)
        if key in {"nodeName", "nominatedNodeName"}:
            return self.of("node", value)
        if key == "priorityClassName":
            return self._class(value)
        if key in _NAMED and isinstance(value, str):
            return "/".join(self.of(_NAMED[key], each) for each in value.split("/"))
        return self._walk(value, key)
