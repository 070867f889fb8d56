"""Registration by files that kube-apiserver reads (`staticManifestsDir`, Kubernetes 1.37): no API request changes it.

Names end with a suffix that the API refuses, webhooks have a URL, and policies take no parameters, so the guards of
held room stay objects. Each admission plugin reads a folder of its own
(https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5793-manifest-based-admission-control-config).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from webhook.kube.objects import keys
from webhook.kube.registration.guards import FORGED
from webhook.kube.registration.installation import pod_with_limits
from webhook.kube.registration.registration_sync import GUARD

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

_Json = dict[str, Any]


def static_files(registered: Iterable[_Json]) -> dict[str, list[_Json]]:
    """Return the objects of each file, by its path in the folder, for webhook configurations and guards.

    A folder without objects gets a file without content: kube-apiserver then has no more of what was there before.
    """
    files: dict[str, list[_Json]] = {f"{folder}/fairgate.yaml": [] for folder, _ in _PLUGINS.values()}
    for each in registered:
        if can_be_static(each):
            files[f"{_FOLDERS[each['kind']]}/fairgate.yaml"].append(_static(each))
    return files


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


def _static(registered: _Json) -> _Json:
    metadata = registered["metadata"]
    named = {**registered, "metadata": {**metadata, "name": f"{metadata['name']}{SUFFIX}"}}
    if "webhooks" in registered:
        named["webhooks"] = [{**each, "name": _static_name(each["name"])} for each in registered["webhooks"]]
    elif "policyName" in registered["spec"]:
        named["spec"] = {**registered["spec"], "policyName": f"{registered['spec']['policyName']}{SUFFIX}"}
    return named


def _static_name(webhook: str) -> str:
    """Return the name of a webhook of a file: refusals name the webhook, so they say how it was registered."""
    return f"{webhook.removesuffix(f'.{keys.OWN_GROUP}')}{_DOMAIN}"


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
