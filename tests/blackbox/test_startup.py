"""A server that cannot start reports why, without a traceback, and exits with 2."""

import asyncio
import re
import socket
from itertools import chain

import pytest

from tests import forks
from tests.blackbox.objects import FOUR_NODES, node, pod
from tests.blackbox.server import as_kubectl_prints, policy_text
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig

GOOD_POLICY = policy_text({"teams": [{"name": "a", "namespaces": ["team-a"], "gpus": {"limit": 20}}]})
GOOD_WORLD = as_kubectl_prints(FOUR_NODES)
SELF_MADE = ("ca.crt", "tls.crt", "tls.key")


def listed(*objects):
    return as_kubectl_prints(objects)


def bomb():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["l0: &l0 [x]", *levels])


WORLDS = {
    "missing": (None, r"world\.yaml: cannot be read: No such file or directory"),
    "empty": ("", r"world\.yaml: is empty; expected what `kubectl get nodes,pods -A -o yaml` prints"),
    "not YAML": ("a: [1", r"world\.yaml: not valid YAML: .*line 1"),
    "a word": ("hello", r"world\.yaml: expected object, got str; expected a v1 List"),
    "binary": ("\x00\x01\x02", r"world\.yaml: not valid YAML: "),
    "deep YAML": ("[" * 200_000, r"world\.yaml: not valid YAML: nested more than 100 levels deep"),
    "deep YAML blocks": ("- " * 100_000, r"world\.yaml: not valid YAML: nested more than 100 levels deep"),
    "deep JSON": ('{"a":' * 200_000, r"world\.yaml: nested too deeply"),
    "a bomb of aliases": (bomb(), r"aliases repeat more than 1,000,000 values"),
    "code in a tag": ("!!python/object/apply:os.getcwd []", r"could not determine a constructor"),
    "another kind": (
        listed({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}),
        r"world\.yaml: items\[0\]: got apps/v1 Deployment; expected one of v1 Node, v1 Pod",
    ),
    "bad amounts": (
        listed(node("n0", allocatable={"cpu": "many"}), pod("p", "team-a", gpus="x")),
        r"items\[0\] \(Node n0\): status.allocatable.cpu: 'many' is not a quantity.*\n.*"
        r"items\[1\] \(Pod team-a/p\): container train: nvidia.com/gpu: 'x' is not a quantity",
    ),
    "a node twice": (listed(node("n0"), node("n0")), r"Node n0 occurs 2 times; keep one"),
}

POLICIES = {
    "empty folder": ({}, r"policy\b.*: no policy files: expected at least one \*\.yaml or \*\.yml here"),
    "other files only": ({"notes.txt": "hello"}, r"no policy files"),
    "empty file": ({"a.yaml": ""}, r"no policy in these files: every document is empty"),
    "not YAML": ({"a.yaml": "teams: ["}, r"a\.yaml:1: not valid YAML"),
    "not UTF-8": ({"a.yaml": b"\xff\xfe\xfa"}, r"a\.yaml:1: not UTF-8 text"),
    "deep": ({"a.yaml": "[" * 200_000}, r"a\.yaml:1: nested more than 32 levels deep"),
    "aliases": ({"a.yaml": bomb()}, r"more than 100,000 values"),
    "another kind": (
        {"a.yaml": "apiVersion: v1\nkind: ConfigMap\n"},
        r"a\.yaml:1: apiVersion: .*fairgate\.dev/v1alpha1",
    ),
    "two problems": (
        {"a.yaml": policy_text({"teams": [{"name": "a", "namespaces": ["x"], "gpus": {"limit": -1}, "color": "red"}]})},
        r"a\.yaml:8: teams\[0\]\.gpus\.limit: a number of GPUs cannot be negative, got -1\n.*"
        r"a\.yaml:9: teams\[0\]\.color: unknown field; known here: name",
    ),
    "huge": ({"a.yaml": "#" * (1024**2 + 1)}, r"larger than 1 MiB"),
}

KUBECONFIGS = {"missing": None, "empty": "", "not YAML": "[", "hollow": "kind: Config"}

CERTS = {
    "not PEM": (dict.fromkeys(SELF_MADE, "rubbish"), r"tls\.crt holds no readable PEM certificate"),
    "half of it": ({"tls.crt": "x"}, r"has tls\.crt but no ca\.crt and no tls\.key: provide all three files"),
    "a file instead": ("a file", r"certs.*Not a directory|certs.*File exists"),
}


def folder_of(root, name, files):
    folder = root / name
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def prepared(root, *, policy=None, world=GOOD_WORLD, certs=None):
    """Write the inputs of a server, and return its arguments by name."""
    root.mkdir()
    policies = folder_of(root, "policy", {"policy.yaml": GOOD_POLICY} if policy is None else policy)
    if world is not None:
        (root / "world.yaml").write_text(world)
    if isinstance(certs, str):
        (root / "certs").write_text(certs)
    elif certs is not None:
        folder_of(root, "certs", certs)
    return {
        "--policy": policies,
        "--world": root / "world.yaml",
        "--listen": "127.0.0.1:0",
        "--certs": root / "certs",
    }


def others(root, taken):
    """Make what is wrong outside the files' contents."""
    gone = prepared(root / "gone") | {"--policy": root / "none"}
    (closed := prepared(root / "closed"))["--policy"].chmod(0o000)
    (closed_file := prepared(root / "closed-file"))["--policy"].joinpath("policy.yaml").chmod(0o000)
    (dangling := prepared(root / "dangling"))["--policy"].joinpath("b.yaml").symlink_to("nowhere")
    (locked := prepared(root / "locked", certs={}))["--certs"].chmod(0o555)
    podless = prepared(root / "podless")
    del podless["--world"]
    return {
        "gone": (gone, r"cannot read .*none: No such file or directory"),
        "closed": (closed, r"cannot read .*policy: Permission denied"),
        "closed file": (closed_file, r"cannot read .*policy\.yaml: Permission denied"),
        "dangling link": (dangling, r"cannot read .*b\.yaml: No such file or directory"),
        "locked certs": (locked, r"certificates in .*certs: cannot write to it \(Permission denied\): make the folder"),
        "address in use": (
            prepared(root / "used") | {"--listen": taken},
            rf"cannot listen on {taken}: another process listens there",
        ),
        "no such address": (prepared(root / "far") | {"--listen": "192.0.2.1:0"}, "cannot listen on 192.0.2.1:0"),
        "no cluster": (podless, r"not inside a cluster .*: give a kubeconfig"),
        **{
            f"kubeconfig {name}": (_with_kubeconfig(root / f"kubeconfig-{name}", content), "kubeconfig")
            for name, content in KUBECONFIGS.items()
        },
    }


def _with_kubeconfig(root, content):
    arguments = prepared(root)
    del arguments["--world"]
    if content is not None:
        (root / "kubeconfig").write_text(content)
    return arguments | {"--kubeconfig": root / "kubeconfig"}


@pytest.fixture(scope="module")
def tries(tmp_path_factory):
    """Each case: its result, and the expected message."""
    root = tmp_path_factory.mktemp("startup")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listed = {
            **{
                f"world {name}": (prepared(root / f"w {name}", world=text), want)
                for name, (text, want) in WORLDS.items()
            },
            **{
                f"policy {name}": (prepared(root / f"p {name}", policy=it), want)
                for name, (it, want) in POLICIES.items()
            },
            **{f"certs {name}": (prepared(root / f"c {name}", certs=it), want) for name, (it, want) in CERTS.items()},
            **others(root, f"127.0.0.1:{taken.getsockname()[1]}"),
        }
        yield {
            name: (forks.run("webhook", "serve", *chain.from_iterable(given.items()), as_root=False), want)
            for name, (given, want) in listed.items()
        }


OTHERS = ("gone", "closed", "closed file", "dangling link", "locked certs", "address in use", "no such address")
NAMES = (
    *(f"world {name}" for name in WORLDS),
    *(f"policy {name}" for name in POLICIES),
    *(f"certs {name}" for name in CERTS),
    *OTHERS,
    "no cluster",
    *(f"kubeconfig {name}" for name in KUBECONFIGS),
)


@pytest.mark.parametrize("name", NAMES)
def test_it_does_not_start_and_reports_why(tries, name):
    result, want = tries[name]
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.startswith("fairgate: cannot start: ")
    assert re.search(want, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 2000


def test_every_startup_error_has_a_case(tries):
    assert tries.keys() == set(NAMES)


@pytest.mark.parametrize("command", ["serve", "evict"])
async def test_a_cluster_that_is_too_old_is_refused_with_the_version_that_is_needed(tmp_path, command):
    (tmp_path / "policy.yaml").write_text(GOOD_POLICY)
    arguments = ["--policy", tmp_path / "policy.yaml", "--namespace", "fairgate-system"]
    arguments += ["--listen", "127.0.0.1:0", "--certs", tmp_path / "certs"] if command == "serve" else []
    async with FakeApi(kubernetes=("1", "29+", "v1.29.3-eks-1")).serving() as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        result = await asyncio.to_thread(forks.run, "webhook", command, *arguments, "--kubeconfig", kubeconfig)
    assert result.returncode == 2, result
    assert result.stderr.splitlines()[-1] == (
        "fairgate: cannot start: the API server is Kubernetes 1.29 (v1.29.3-eks-1); Fairgate needs Kubernetes 1.30 or "
        "newer, whose API servers have ValidatingAdmissionPolicies and match conditions of webhooks: upgrade the "
        "cluster first"
    )
    assert "Traceback" not in result.stderr
