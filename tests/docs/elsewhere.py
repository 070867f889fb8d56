"""The commands of the documentation that no test runs as they stand, each with the reason."""

_TESTS = "the tests would run each other"
_POD = "it reads a pod's service account, at paths that only a container has"

PROGRAMS = frozenset({"docker", "git", "kind", "kubectl"})
"""What they call besides Fairgate and make."""

NOT_HERE = {
    "docker build --tag fairgate/fairgate:0.1.0 fairgate": "no image registry is reached from the tests",
    "git clone https://git.example.org/fairgate.git": "the tests are in a clone; where it comes from is the reader's",
    "kind create cluster --name fairgate": "it needs docker and images",
    "kind load docker-image fairgate/fairgate:0.1.0 --name fairgate": "it needs docker and images",
    "kubectl logs -n fairgate-system -l app.kubernetes.io/name=fairgate --tail=-1 | fairgate report": (
        "no kubelet serves logs there; scenarios/test_enforce.py gives a server's log to the same command"
    ),
    "make -C fairgate setup": "the tests run in what it made",
    "make demo": "tests/demo plays it, and compares what it prints with the README",
    "make run": "test_docs.py compares what it prints with the README",
    "make setup": "the tests run in what it made",
    "make test": _TESTS,
    "make test-fast": _TESTS,
    "fairgate evict --policy policies/default --listen :9090": _POD,
    "fairgate serve --policy /etc/fairgate/policy --listen :8443 --certs-secret fairgate-certs"
    " --cert-host fairgate.fairgate-system.svc": _POD,
}
