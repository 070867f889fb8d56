"""The API server accepts what the chart renders from every set of values, with pods of the standard `restricted`."""

from __future__ import annotations

import json

import pytest

from tests.charts.helm import CI_VALUES, NAMESPACE, WITH_UNINSTALL, kinds, render
from tests.charts.installed import prepared
from tests.control_plane.certmanager import cert_manager_definitions
from tests.control_plane.kubectl import KubectlError, manifest

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]

# No Go module has their definitions; test_rendered.py checks them.
OPERATOR_KINDS = ("ServiceMonitor", "PrometheusRule")


@pytest.fixture
def strict(cluster):
    """A cluster with an empty namespace that takes only restricted pods, and that knows the kinds of cert-manager."""
    with prepared(cluster), cert_manager_definitions(cluster):
        yield cluster


def test_everything_rendered_is_accepted(strict):
    for values in CI_VALUES:
        made = [
            found
            for found in render("-f", values, *WITH_UNINSTALL, with_hooks=True)
            if found["kind"] not in OPERATOR_KINDS
        ]
        apply = ("apply", "--server-side", "--dry-run=server", "-f", "-")
        elsewhere = [found for found in made if found["metadata"].get("namespace", NAMESPACE) != NAMESPACE]
        of_release = [found for found in made if found not in elsewhere]
        said = strict.kubectl(*apply, "-n", NAMESPACE, stdin=manifest(of_release))
        said += strict.kubectl(*apply, stdin=manifest(elsewhere)) if elsewhere else ""
        assert said.count("serverside-applied") == len(made), values.name
        for found in kinds(made, "Deployment", "StatefulSet", "Job"):
            claims = [claim["metadata"]["name"] for claim in found["spec"].get("volumeClaimTemplates", ())]
            if not found["spec"]["template"]["spec"].get("hostNetwork"):
                create(strict, found["spec"]["template"], claims=claims)
                continue
            with pytest.raises(KubectlError, match=r"violates PodSecurity .restricted.*host namespaces"):
                create(strict, found["spec"]["template"], claims=claims)


def test_the_namespace_would_refuse_less(strict):
    [template] = [found["spec"]["template"] for found in kinds(render(), "Deployment")]
    del template["spec"]["securityContext"]["runAsNonRoot"]
    with pytest.raises(KubectlError, match='violates PodSecurity "restricted'):
        create(strict, template)


def create(cluster, template, *, claims=()):
    """Try to create a pod of a template; its ServiceAccount and priority are not tested here."""
    spec = {key: value for key, value in template["spec"].items() if key != "serviceAccountName"}
    spec["volumes"] = [
        *spec.get("volumes", ()),
        *({"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in claims),
    ]
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "try-", **template["metadata"]},
        "spec": spec,
    }
    cluster.kubectl("create", "--dry-run=server", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(made))
