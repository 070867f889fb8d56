"""The parts of the chart that follow from the code and from its values; `python -m tests.charts.generated` writes them.

A test compares them with what is there.
"""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from tests.charts.helm import CHART
from tests.charts.readme import readme
from webhook.core.model.amounts import ResourceName
from webhook.core.model.gpu_shares import OTHER_DEVICES, PATTERN, looks_like_gpu
from webhook.core.model.policy import OPERATOR_NAMESPACES, Enforcement, Policy
from webhook.kube.kinds.table import BUILT_IN as BUILT_IN_KINDS
from webhook.kube.registration.guards import changed_labels_expression, guards
from webhook.kube.registration.registration import ServiceReference, gpu_pod_expression, webhook_configurations
from webhook.kube.registration.static_files import Component, definitions, kind_rules, viewer_role
from webhook.policy.sections import BUILT_IN

COUNTED, IGNORED, KEY, PATH, USER = "@counted@", "@ignored-gpu@", "@key@", "@path@", "@user@"


def generated() -> dict[str, str]:
    """Every generated file of the chart, by its path in it."""
    return {
        "README.md": readme(CHART),
        "files/viewer.yaml": _yaml(viewer_role()),
        "files/kinds.yaml": _yaml({each.value: kind_rules(each) for each in Component}),
        **{f"files/{made['spec']['names']['plural']}.yaml": _yaml(made["spec"]) for made in definitions()},
        "files/webhooks.json": f"{json.dumps(_webhooks(), indent=2)}\n",
    }


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=2**16)


def _webhooks() -> dict[str, object]:
    """The webhook configurations with placeholders for the policy's parts, and with the defaults in their place."""
    lenient = Policy(resources={ResourceName(COUNTED): 1}, ignored_resources=frozenset([ResourceName(IGNORED)]))
    guarded = replace(lenient, defaults=replace(lenient.defaults, host_paths=(PATH,)))
    service = ServiceReference("@namespace@", "@service@", 0)
    looking_on = replace(lenient, enforce=Enforcement.SHADOW)
    patient = webhook_configurations(looking_on, ca_bundle_pem=None, service=service)[0]["webhooks"][0]
    return {
        "configurations": webhook_configurations(lenient, ca_bundle_pem=None, service=service),
        "notEnforced": {key: patient[key] for key in ("failurePolicy", "timeoutSeconds")},
        "concerns": gpu_pod_expression(lenient),
        "guards": guards(guarded, trusted_users=[USER]),
        "tenancyKey": changed_labels_expression([KEY]),
        "lookalike": PATTERN,
        "otherDevices": OTHER_DEVICES,
        "counted": sorted(name for name, weight in BUILT_IN.items() if weight),
        "ignored": sorted(name for name, weight in BUILT_IN.items() if not weight and looks_like_gpu(name)),
        "notJudged": [f"{row.kind.group}/{row.kind.kind}" for row in BUILT_IN_KINDS if not row.is_judged],
        "operatorNamespaces": list(OPERATOR_NAMESPACES),
        "kinds": [
            {
                "group": row.kind.group,
                "kind": row.kind.kind,
                "resource": row.kind.resource,
                "versions": list(row.versions),
            }
            for row in BUILT_IN_KINDS
            if row.is_judged
        ],
    }


if __name__ == "__main__":
    for name, text in generated().items():
        (CHART / name).write_text(text)
