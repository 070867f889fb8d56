"""Pods as their controllers would create them: read from manifests, before any decision on them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.core.admission.pools import as_created
from webhook.core.model.amounts import Namespace
from webhook.core.model.decision import Deny
from webhook.core.model.demand import reweighed
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.model.reasons import Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.copied_pod import may_be_copied, without_copied_decision
from webhook.kube.admission.pod_patch import apply
from webhook.kube.objects import objects
from webhook.kube.pod.pods import InvalidPod, to_pod

_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class Template:
    """A pod as its controller would create it: the manifest, the decoded object, and the pod of decisions."""

    written: Mapping[str, Any]
    found: objects.Pod
    pod: Pod


def read_template(
    written: Mapping[str, Any], *, namespace: Namespace, world: World, is_new: bool = False
) -> Template | Deny:
    """Return the template of a manifest; a Deny has the reasons why it is not a valid pod.

    `is_new`: the pod does not exist, so that a decision on it is that on another one.
    """
    try:
        found = _pod_decoder.decode(msgspec.json.encode(written))
        if is_new and may_be_copied(found):
            found, changes = without_copied_decision(found, world.policy.pools)
            written = apply(written, changes)
    except objects.UNREADABLE as error:
        return Deny((Reason(Code.INVALID_REQUEST, "{problem}", {"problem": objects.describe(error)}),))
    pod = to_pod(found, namespace=namespace, weights=world.policy.resources)
    if isinstance(pod, InvalidPod):
        return Deny(pod.reasons)
    return Template(written, found, as_created(pod, world.policy))


def under_policy(pod: Pod, policy: Policy) -> Pod:
    """Return a pod that was read under one policy as another one counts its GPUs."""
    return as_created(pod._replace(demand=reweighed(pod.demand, policy.resources)), policy)
