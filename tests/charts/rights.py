"""Rights: the rights that the chart's roles grant, and the requests in the audit log."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.charts.helm import RELEASE, WITH_UNINSTALL, kinds, render
from tests.charts.installed import EVICTOR, SERVER, Installed
from webhook.kube.objects.keys import VIEWER
from webhook.kube.registration.static_files import (
    HELD_ROOM_OBJECT,
    REGISTERED_GUARDS,
    Component,
    certificates,
    definitions,
    kind_rules,
    leases,
)
from webhook.kube.registration.static_files import ROLES as ROLES_OF_MANIFESTS

Json = dict[str, Any]

CREDENTIAL = "authentication.kubernetes.io/credential-id"
DECISION = "authorization.k8s.io/decision"
UNINSTALL = "uninstall"
ROLES = {
    SERVER: ("server", "certs", "registration", "autoscaler"),
    EVICTOR: ("evictor", "autoscaler"),
    UNINSTALL: ("uninstall",),
}
"""The roles of each container. A pod has one ServiceAccount; the audit log distinguishes containers by their tokens."""


class Right(NamedTuple):
    """One verb on one resource; `name` is empty for every object, or if none is named."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def covers(self, asked: Right) -> bool:
        """Whether this right allows a request."""
        return self._replace(name="") == asked._replace(name="") and self.name in ("", asked.name)


def granted(role: Json) -> Iterator[Right]:
    """Every single right of a Role or ClusterRole."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, group, resource, name)


def asked(events: Iterable[Json], *, token: str) -> set[Right]:
    """The requests made with a token."""
    return {_right(event) for event in _by(events, token) if "objectRef" in event}


def forbidden(events: Iterable[Json], *, token: str) -> list[str]:
    """The requests made with a token and not allowed."""
    refused = (event for event in _by(events, token) if event["annotations"].get(DECISION) == "forbid")
    return sorted(f"{event['verb']} {event['requestURI']}" for event in refused)


def _by(events: Iterable[Json], token: str) -> Iterator[Json]:
    claims = token.split(".")[1]
    credential = f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"
    return (event for event in events if credential in event["user"].get("extra", {}).get(CREDENTIAL, ()))


def _right(event: Json) -> Right:
    target = event["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    return Right(event["verb"], target.get("apiGroup", ""), resource, target.get("name", ""))


_OF_A_LINE = frozenset(
    {
        Right("patch", "", "pods"),
        Right("get", "", "nodes"),
        Right("patch", "", "nodes"),
        Right("patch", "apps", "statefulsets/scale", RELEASE),
        *(Right("delete", each.group, each.plural, each.name) for each in ROLES_OF_MANIFESTS if each.name != VIEWER),
    }
)
"""What uninstalling needs only where pods wait, nodes are held, a history is recorded (test_uninstall.py), or where
`fairgate manifests` was applied before the chart was installed."""
USED_ELSEWHERE = frozenset(
    {
        Right("delete", "", "pods", ""),
        Right("patch", "", "pods/status", ""),
        Right("get", "fairgate.dev", "teamledgers", ""),
        Right("get", "", "events", ""),
        Right("get", "", "pods", ""),
        Right("create", "fairgate.dev", "reports", ""),
        Right("get", "fairgate.dev", "reports", "moves"),
        Right("patch", "fairgate.dev", "reports", "moves"),
        Right("get", "fairgate.dev", "reports", "replicas"),
        Right("get", "fairgate.dev", "reports", "starts"),
        Right("patch", "fairgate.dev", "reports", "starts"),
        Right("patch", "fairgate.dev", "reports", "usage"),
        *(Right("update", each.group, each.plural, each.name) for each in REGISTERED_GUARDS if "Binding" in each.kind),
        Right("list", "fairgate.dev", "heldnodes", ""),
        *(
            right
            for component in Component
            for right in granted({"rules": kind_rules(component)})
            if right.verb in ("get", "patch") or (right.verb == "list" and right.group == "kubeflow.org")
        ),
    }
)
"""What no step of the walk is sure to need: deleting a pod past a budget, with a condition in its status
(tests/attacks/test_borrowed.py), reading a ledger that another replica wrote meanwhile
(tests/scenarios/test_replicas.py), going on with an Event that another replica began, giving guards the
actions of an edited mode, which takes the right to list held nodes (test_restored.py), reading the owners of
pods and having controllers try again (tests/scenarios/test_owners.py,
tests/cluster/writes/test_owner_events.py), writing a Report before the other component does
(tests/cluster/writes/test_reports.py), publishing waits after a minute (tests/server/leader), publishing the
usage of a history that is recorded, recording moves of pods where policy has them
(tests/scenarios/test_moves_made.py), reading the sizes of gangs, and the kinds of operators that are not
installed here (tests/scenarios/test_predicted.py)."""


_OF_EVERY_USER = Right("create", "authorization.k8s.io", "selfsubjectaccessreviews")
_REMOVED = {
    *((each.group, each.plural) for each in (*leases("n"), certificates("n", "c"), HELD_ROOM_OBJECT)),
    *((made["spec"]["group"], made["spec"]["names"]["plural"]) for made in definitions()),
}
"""The kinds of what processes create and `fairgate uninstall` removes, by itself or with their definition."""
_NOT_STORED = {("", "events"), ("", "pods/eviction")}
"""Events expire, and an eviction is no object."""


class RightsAudit:
    """Records the users of a release's containers, and checks their requests at the end."""

    def __init__(self, release: Installed) -> None:
        self._release = release
        self._tokens: dict[str, set[str]] = {SERVER: set(), EVICTOR: set(), UNINSTALL: release.hooks.tokens}

    def note(self) -> None:
        """Record the containers that run now."""
        for running in self._release.pods:
            for name, container in running.items():
                self._tokens[name].add(container.token)

    def check(self, events: Iterable[Json]) -> None:
        """Fail for every right that was not needed, that a container used of another one, or that was missing."""
        events = list(events)
        problems = [line for component in ROLES for line in self._problems(component, events)]
        assert not problems, "\n".join(problems)

    def _problems(self, component: str, events: list[Json]) -> Iterator[str]:
        tokens = self._tokens[component]
        rights = rights_of(component)
        used = set().union(*(asked(events, token=token) for token in tokens))
        refused = {line for token in tokens for line in forbidden(events, token=token)}
        yield from (f"{component} was not allowed to {line}" for line in sorted(refused))
        for each in sorted(used - {_OF_EVERY_USER}):
            if each.verb == "create" and (each.group, each.resource) not in _REMOVED | _NOT_STORED:
                yield f"{component} creates what no uninstallation removes: {each}"
            if not any(right.covers(each) for right in rights):
                yield f"{component} has from another role: {each}"
        for right in sorted(rights - (_OF_A_LINE if component == UNINSTALL else USED_ELSEWHERE)):
            if not any(right.covers(each) for each in used):
                yield f"{component} never needed {right}"


def rights_of(component: str) -> set[Right]:
    """What the chart grants to a container."""
    names = {f"{RELEASE}-{part}" for part in ROLES[component]}
    rendered = kinds(render(*WITH_UNINSTALL, with_hooks=True), "Role", "ClusterRole")
    roles = [role for role in rendered if role["metadata"]["name"] in names]
    return {right for role in roles for right in granted(role)}
