"""All kinds of credentials against a real HTTP server, and the text of each failure."""

import asyncio
import json
import re
import sys

import pytest

from tests.cluster.support.fake_api import Answer, FakeApi, Slow
from tests.cluster.support.pki import Authority
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import ApiError, ClusterError, connect

NODES = "/api/v1/nodes"


async def ask(connection, *, read_seconds=5.0):
    async with connection.get(NODES, {"limit": "2"}, action="list nodes", read_seconds=read_seconds) as response:
        return await response.json()


def says(*words):
    return ".*".join(re.escape(word) for word in words)


@pytest.fixture
def kubeconfig(tmp_path):
    return tmp_path / "kubeconfig"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "cluster-ca")


@pytest.fixture
def pod(tmp_path, monkeypatch, authority):
    """What the kubelet mounts in a pod; the server's address is set later."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("good\n")
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    return folder


# -- configurations that cannot work


async def test_no_kubeconfig(kubeconfig):
    with pytest.raises(ClusterError, match=says("kubeconfig", str(kubeconfig), "does not exist")):
        await connect(kubeconfig)


async def test_not_in_a_pod(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match=says("not inside a cluster", "give a kubeconfig")):
        await connect(None, service_account=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[", id="no YAML"),
        pytest.param("just words", id="no mapping"),
        pytest.param("apiVersion: v1\nkind: Config\n", id="no context"),
        pytest.param("current-context: a\ncontexts: []\nclusters: []\nusers: []\n", id="an unknown context"),
    ],
)
async def test_a_broken_kubeconfig(kubeconfig, text):
    kubeconfig.write_text(text)
    with pytest.raises(ClusterError, match=says("kubeconfig", str(kubeconfig))):
        await connect(kubeconfig)


async def test_an_invalid_ca(kubeconfig, tmp_path):
    (tmp_path / "ca.crt").write_text("words")
    write_kubeconfig(kubeconfig, "https://127.0.0.1:1", cluster={"certificate-authority": "ca.crt"})
    with pytest.raises(ClusterError, match=says("its CA or client certificate cannot be used")):
        await connect(kubeconfig)


async def test_an_exec_plugin_that_fails(kubeconfig):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1", exec=plugin)
    with pytest.raises(ClusterError, match=says("exec: process returned 1")):
        await connect(kubeconfig)


# -- servers that refuse, or do not respond


async def test_an_unreachable_server(kubeconfig, unused_tcp_port):
    write_kubeconfig(kubeconfig, f"http://127.0.0.1:{unused_tcp_port}")
    async with await connect(kubeconfig) as connection:
        with pytest.raises(ClusterError, match=says("cannot list nodes", str(unused_tcp_port), "cannot be reached")):
            await ask(connection)


async def test_a_server_that_does_not_respond(api, connection):
    api.always["list"] = Slow(60)
    with pytest.raises(ClusterError, match=says("cannot list nodes", api.url, "did not respond for 0.05 s")):
        await ask(connection, read_seconds=0.05)


async def test_a_socket_that_uvloop_finds_closed_is_a_broken_connection(connection, monkeypatch):
    async def closed(*_):
        raise RuntimeError("unable to perform operation on <UVPoll closed=True>; the handler is closed")

    monkeypatch.setattr("aiohttp.connector.TCPConnector._create_connection", closed)
    with pytest.raises(ClusterError, match=says("cannot list nodes: the connection to", "broke", "is closed")):
        await ask(connection)
    with pytest.raises(ClusterError, match=says("cannot get node: the connection to", "broke", "is closed")):
        await connection.send("GET", NODES, action="get node")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(401, ("cannot list nodes: 401", "credentials are invalid or expired"), id="401"),
        pytest.param(403, ("cannot list nodes: 403", "RBAC must grant this user the verb list on nodes"), id="403"),
        pytest.param(302, ("cannot list nodes: 302",), id="a redirect, which would take the token along"),
        pytest.param(500, ("cannot list nodes: 500 configured to answer 500",), id="500"),
    ],
)
async def test_a_forbidden_request_says_what_to_do(api, connection, status, words):
    api.always["list"] = Answer(status)
    with pytest.raises(ApiError, match=says(*words)) as raised:
        await ask(connection)
    assert raised.value.status == status


@pytest.mark.parametrize(
    ("message", "is_rbac"),
    [
        ('pods is forbidden: User "ann" cannot list resource "pods" in API group ""', True),
        ('nodes "a" is forbidden: User "ann" cannot get resource "nodes"', True),
        ('admission webhook "validate.fairgate.dev" denied the request: exceeded quota: team a', False),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot', False),
        ('pods "a" is forbidden: exceeded quota: gpus, requested: 4', False),
    ],
)
async def test_only_a_missing_right_is_said_to_be_one(api, connection, message, is_rbac):
    api.always["list"] = Answer(403, message=message)
    with pytest.raises(ApiError) as raised:
        await ask(connection)
    assert ("RBAC must grant" in str(raised.value)) is is_rbac


async def test_a_response_with_retry_after(api, connection):
    api.always["list"] = Answer(429, retry_after="7")
    with pytest.raises(ApiError) as raised:
        await ask(connection)
    assert raised.value.retry_after_seconds == 7.0


async def test_a_ca_that_did_not_sign_the_server(kubeconfig, authority, tmp_path):
    other = Authority(tmp_path, "other-ca")
    async with FakeApi().serving(authority.server()) as api:
        write_kubeconfig(kubeconfig, api.url, cluster={"certificate-authority": str(other.certificate)})
        async with await connect(kubeconfig) as connection:
            with pytest.raises(ClusterError, match=says("the certificate of", api.url, "not trusted, check the CA")):
                await ask(connection)


async def test_plain_http_where_tls_was_expected(kubeconfig, api):
    write_kubeconfig(kubeconfig, api.url.replace("http:", "https:"))
    async with await connect(kubeconfig) as connection:
        with pytest.raises(ClusterError, match=says("no TLS with")):
            await ask(connection)


# -- credentials that work, and keep working


async def test_a_token(api, connection):
    assert (await ask(connection))["kind"] == "List"
    assert api.asked[0].authorization == "Bearer good"


async def test_tls_with_a_client_certificate_and_another_server_name(kubeconfig, authority, tmp_path):
    people = Authority(tmp_path, "people-ca")
    me = people.issue("me")
    async with FakeApi(tokens={""}).serving(authority.server("kubernetes", clients=people)) as api:
        cluster = {"certificate-authority": str(authority.certificate), "tls-server-name": "kubernetes"}
        certificate = {"client-certificate": str(me.certificate), "client-key": str(me.key)}
        write_kubeconfig(kubeconfig, api.url, cluster=cluster, **certificate)
        async with await connect(kubeconfig) as connection:
            await ask(connection)
        cluster["tls-server-name"] = "another-name"
        write_kubeconfig(kubeconfig, api.url, cluster=cluster, **certificate)
        async with await connect(kubeconfig) as connection:
            with pytest.raises(ClusterError, match=says("not trusted")):
                await ask(connection)


async def test_an_unverified_server_where_the_kubeconfig_says_so(kubeconfig, authority):
    async with FakeApi().serving(authority.server()) as api:
        write_kubeconfig(kubeconfig, api.url, cluster={"insecure-skip-tls-verify": True})
        async with await connect(kubeconfig) as connection:
            assert (await ask(connection))["kind"] == "List"


async def test_a_token_file_that_was_rotated_is_read_again_once_for_all_requests(api, kubeconfig, tmp_path):
    (tmp_path / "token").write_text("good")
    write_kubeconfig(kubeconfig, api.url, tokenFile="token")
    async with await connect(kubeconfig) as connection:
        await ask(connection)
        (tmp_path / "token").write_text("better")
        api.tokens = {"better"}
        await asyncio.gather(*(ask(connection) for _ in range(4)))
    used = [asked.authorization for asked in api.asked]
    assert used[-4:] == ["Bearer better"] * 4
    assert used.count("Bearer good") <= 5


async def test_an_exec_plugin_is_run_again_when_its_token_expired(api, kubeconfig, tmp_path):
    runs = tmp_path / "runs"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        f"import json, pathlib\nruns = pathlib.Path({str(runs)!r})\n"
        "number = len(runs.read_text()) if runs.exists() else 0\nruns.write_text('x' * (number + 1))\n"
        f"print(json.dumps({credential!r} | {{'status': {{'token': f'token-{{number}}'}}}}))\n"
    )
    command = {"apiVersion": credential["apiVersion"], "command": sys.executable, "args": [str(plugin)]}
    write_kubeconfig(kubeconfig, api.url, exec=command)
    api.tokens = {"token-0"}
    async with await connect(kubeconfig) as connection:
        await ask(connection)
        await ask(connection)
        api.tokens = {"token-1"}
        await ask(connection)
    assert [asked.authorization for asked in api.asked] == [f"Bearer token-{n}" for n in (0, 0, 0, 1)]


async def test_a_pod_uses_its_service_account_and_notices_new_tokens(authority, pod, monkeypatch):
    async with FakeApi().serving(authority.server()) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rsplit(":", 1)[1])
        async with await connect(None, service_account=pod) as connection:
            await ask(connection)
            (pod / "token").write_text("better\n")
            api.tokens = {"better"}
            await ask(connection)
    assert [asked.authorization for asked in api.asked] == ["Bearer good", "Bearer good", "Bearer better"]


async def test_a_new_cluster_ca_is_read_again(pod, monkeypatch, tmp_path):
    successor = Authority(tmp_path, "successor-ca")
    async with FakeApi().serving(successor.server()) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rsplit(":", 1)[1])
        async with await connect(None, service_account=pod) as connection:
            with pytest.raises(ClusterError, match="not trusted"):
                await ask(connection)
            (pod / "ca.crt").write_bytes(successor.certificate.read_bytes())
            assert (await ask(connection))["kind"] == "List"


async def test_a_kubeconfig_that_impersonates_acts_as_that_user(api, kubeconfig):
    extra = {"example.org/reason": ["audit", "test"]}
    user = {"as": "jane", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": extra}
    write_kubeconfig(kubeconfig, api.url, token="good", **user)
    async with await connect(kubeconfig) as connection:
        await ask(connection)
    got = [(name, value) for name, value in api.asked[0].headers.items() if name.startswith("Impersonate")]
    assert got == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.org%2Freason", "audit"),
        ("Impersonate-Extra-example.org%2Freason", "test"),
    ]


async def test_a_proxy_of_the_environment_is_used(api, kubeconfig, monkeypatch):
    monkeypatch.setenv("http_proxy", api.url)
    monkeypatch.delenv("no_proxy", raising=False)
    write_kubeconfig(kubeconfig, "http://kubernetes.invalid")
    async with await connect(kubeconfig) as connection:
        assert json.dumps(await ask(connection))
    assert api.asked[0].path == NODES


# -- single objects


LEASES = "/apis/coordination.k8s.io/v1/namespaces/ours/leases"


async def test_an_object_is_created_updated_patched_read_and_deleted(connection):
    made = json.loads(await connection.send("POST", LEASES, _body("leader", 1), action="create leases"))
    changed = made | {"spec": {"turn": 2}}
    await connection.send("PUT", f"{LEASES}/leader", json.dumps(changed).encode(), action="update leases")
    patch = b'{"metadata": {"labels": {"a": "b"}}}'
    kind = "application/merge-patch+json"
    await connection.send("PATCH", f"{LEASES}/leader", patch, content_type=kind, action="patch leases")
    read = json.loads(await connection.send("GET", f"{LEASES}/leader", action="get leases"))
    assert (read["spec"], read["metadata"]["labels"]) == ({"turn": 2}, {"a": "b"})
    await connection.send("DELETE", f"{LEASES}/leader", action="delete leases")
    with pytest.raises(ApiError, match=says("cannot get leases: 404")) as raised:
        await connection.send("GET", f"{LEASES}/leader", action="get leases")
    assert raised.value.is_missing


async def test_a_write_from_an_old_version_is_a_conflict(connection):
    made = json.loads(await connection.send("POST", LEASES, _body("leader", 1), action="create leases"))
    body = json.dumps(made).encode()
    await connection.send("PUT", f"{LEASES}/leader", body, action="update leases")
    with pytest.raises(ApiError, match=says("cannot update leases: 409")) as raised:
        await connection.send("PUT", f"{LEASES}/leader", body, action="update leases")
    assert raised.value.is_conflict


async def test_a_name_that_is_taken_is_a_conflict(connection):
    await connection.send("POST", LEASES, _body("leader", 1), action="create leases")
    with pytest.raises(ApiError) as raised:
        await connection.send("POST", LEASES, _body("leader", 1), action="create leases")
    assert raised.value.is_conflict


async def test_a_write_without_a_response_is_not_an_api_error(api, connection):
    api.always["post"] = Slow(60)
    with pytest.raises(ClusterError, match=says("cannot create leases", "did not respond for 0.05 s")) as raised:
        await connection.send("POST", LEASES, _body("leader", 1), action="create leases", seconds=0.05)
    assert not isinstance(raised.value, ApiError)


def _body(name: str, turn: int) -> bytes:
    return json.dumps({"metadata": {"name": name}, "spec": {"turn": turn}}).encode()
