"""The ClusterRole for read access to what Fairgate publishes and to its registration."""

from typing import Any, Final

from webhook.kube.objects import keys
from webhook.kube.registration.device_guards import DEVICES, SOURCES, VOLUMES
from webhook.kube.registration.guards import FORGED, GRACE, HELD_ROOM, LABELS, TENANCY
from webhook.kube.registration.held_guards import PARAMETRIC
from webhook.kube.registration.registration import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from webhook.kube.registration.size_guards import BINDING_SIZES, SIZES

_Json = dict[str, Any]

GUARDS: Final = (
    *(LABELS, HELD_ROOM, TENANCY, FORGED, GRACE),
    *PARAMETRIC,
    *(DEVICES, SOURCES, VOLUMES),
    *(SIZES, BINDING_SIZES),
)
"""The names of all guards, and of their bindings."""


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
