"""The commands of the documentation that no test runs as they are, each with the reason."""

_TESTS = "the tests would run each other"
_IMAGE = "it builds or runs an image, which needs root, an image builder and minutes"
_KIND = "it needs docker and images; the API server of the tests runs on this machine itself"
_RECORDED = "it asks servers or a Prometheus that recorded for days; tests/scenarios/test_usage.py asks real ones"
_LEAVES = "the commands after it look at what it removes; tests/scenarios/test_uninstall.py runs it"
_CLOUD = "it needs an account of this cloud, or its cluster"
_HOST = "it writes where hosts of API servers have files; tests/scenarios/test_static_registration.py does it elsewhere"
_POD = "it reads a pod's service account, at paths that only a container has"

PROGRAMS = frozenset({".ci/image-base", "aws", "docker", "export", "gcloud", "git", "helm", "kind", "oc"})
"""The programs that they call besides Fairgate and make."""

EXCLUDED_COMMANDS = {
    ".ci/image-base localhost/fairgate-base": _IMAGE,
    "aws ec2 authorize-security-group-ingress --group-id NODES --source-group CONTROL_PLANE --protocol tcp"
    " --port 8443": _CLOUD,
    "docker push registry.example.org/fairgate:0.1.0": _IMAGE,
    "docker tag fairgate/fairgate:0.1.0 registry.example.org/fairgate:0.1.0": _IMAGE,
    "export FAIRGATE_HOST=$(docker exec fairgate-control-plane ip -4 route show default | cut -d' ' -f3)": _KIND,
    "export FAIRGATE_HOST=host.docker.internal": _KIND,
    "gcloud compute firewall-rules create fairgate --direction INGRESS --allow tcp:8443"
    " --source-ranges CONTROL_PLANE_RANGE --target-tags NODES": _CLOUD,
    "kind create cluster --name fairgate": _KIND,
    "make -C fairgate image": _IMAGE,
    "make -C fairgate setup": "the tests run in what it made",
    "make demo": "tests/demo plays it, and compares what it prints with the README",
    "make image BASE=python:3.13-slim-trixie": _IMAGE,
    "make image CONTAINER=podman BASE=localhost/fairgate-base": _IMAGE,
    "make image-check CONTAINER=podman": _IMAGE,
    "make run": "test_docs.py runs it",
    "make setup": "the tests run in what it made",
    "make test": _TESTS,
    "make test-all": _TESTS,
    "make test-fast": _TESTS,
    "fairgate manifests --policy policy --url https://$FAIRGATE_HOST:8443 --ca certs.d/ca.crt"
    " --static /etc/kubernetes/fairgate": _HOST,
    "fairgate manifests --policy policies/default --url https://10.0.0.9:8443 --ca certs.d/ca.crt"
    " --static /etc/kubernetes/fairgate": _HOST,
    "oc label namespace fairgate-system openshift.io/cluster-monitoring=true": _CLOUD,
    "fairgate uninstall --keep-queue --keep-definitions": _LEAVES,
    "fairgate uninstall --namespace fairgate-system": _LEAVES,
    "fairgate usage --since 30d --by team -o csv": _RECORDED,
    "fairgate evict --policy policies/default --listen :9090": _POD,
    "fairgate serve --policy /etc/fairgate/policy --listen :8443 --certs-secret fairgate-certs"
    " --cert-host fairgate.fairgate-system.svc": _POD,
}
