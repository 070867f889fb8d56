"""Certificates by cert-manager, with its real controllers."""

import base64

import pytest

from tests.charts.installed import SERVER, installed
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary", "cert_manager")]

EXPIRY = "fairgate_certificate_expiration_timestamp_seconds"
SECRET = "/api/v1/namespaces/fairgate-system/secrets/fairgate-certs"


def test_cert_manager_issues_injects_and_renews(cluster):
    namespace = make_namespace(cluster)
    make_nodes(cluster, 1)  # on which helm's hook runs
    with installed(cluster, "--set", "certManager.enabled=true,replicaCount=1") as fairgate:
        fairgate.wait_asked(namespace)
        first = cluster.api.get(SECRET)["data"]
        for plural, name in (("mutating", "zz-fairgate"), ("validating", "fairgate")):
            found = cluster.api.get(f"{ADMISSION}/{plural}webhookconfigurations/{name}")
            assert {webhook["clientConfig"]["caBundle"] for webhook in found["webhooks"]} == {first["ca.crt"]}
        served = fairgate.metric(EXPIRY)

        cluster.api.delete(SECRET)
        wait_for(cluster, lambda: cluster.api.get(SECRET)["data"]["tls.crt"] != first["tls.crt"], what="a new one")
        fairgate.kubelet.sync()
        wait_for(cluster, lambda: fairgate.metric(EXPIRY) > served, what="the new certificate served")
        fairgate.wait_asked(namespace)
        assert base64.b64decode(first["tls.key"]).decode() not in cluster.processes.log(
            fairgate.pods[0][SERVER].process
        )
