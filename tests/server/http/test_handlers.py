"""Probes, metrics, and paths that do not exist."""

import pytest

from tests.core.support.make import policy, resident, team
from tests.server.support.harness import running
from webhook.core.world.world import World


async def test_liveness_is_plain(server):
    reply = await server.ask("GET", "/healthz")
    assert (reply.status, reply.text) == (200, "ok\n")


async def test_readiness_reports_every_condition(server):
    server.readiness.set_ok("policy", remark="kept the last good one: teams.yaml:3 is broken")
    server.readiness.watch("world", lambda: "nodes were not listed yet")
    server.readiness.watch("certificate", lambda: None, remark=lambda: "not published yet")
    reply = await server.ask("GET", "/readyz")
    assert reply.status == 503
    assert reply.json == {
        "ready": False,
        "conditions": {
            "policy": {"ok": True, "why": "kept the last good one: teams.yaml:3 is broken"},
            "world": {"ok": False, "why": "nodes were not listed yet"},
            "certificate": {"ok": True, "why": "not published yet"},
            "serving": {"ok": True, "why": ""},
        },
    }
    server.readiness.watch("world", lambda: None)
    reply = await server.ask("GET", "/readyz")
    assert (reply.status, reply.json["ready"]) == (200, True)


async def test_metrics_are_computed_on_each_scrape(server):
    world = World(policy(team("vision", namespaces=("vision",), guaranteed=8)))
    world.set_pod(resident(2, namespace="vision"))
    server.metrics.watch_world(world)
    server.metrics.watch_certificate(lambda: 1_800_000_000.0)
    server.metrics.policy_reload(is_success=True)
    server.metrics.policy_reload(is_success=False)
    reply = await server.ask("GET", "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain")
    for want in (
        'fairgate_gpus_charged{team="vision",tier="guaranteed"} 2.0',
        "fairgate_certificate_expiration_timestamp_seconds 1.8e+09",
        "fairgate_policy_last_reload_successful 0.0",
        'fairgate_policy_reloads_total{result="failure"} 1.0',
        "fairgate_build_info{",
    ):
        assert want in reply.text


async def test_openmetrics_is_served_on_request(server):
    reply = await server.ask("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


@pytest.mark.parametrize("path", ["/", "/mutate/", "/metrics/../mutate", "/%6dutate", "/mutate;x"])
async def test_other_paths_are_a_404(server, path):
    reader, writer = await server.connect()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
    assert b"the paths are /mutate, /validate" in await reader.readuntil(b"}\n")


@pytest.mark.parametrize(
    ("method", "path", "want"),
    [
        ("GET", "/mutate", "POST"),
        ("PUT", "/validate", "POST"),
        ("POST", "/readyz", "GET, HEAD"),
        ("OPTIONS", "/metrics", "GET, HEAD"),
    ],
)
async def test_other_methods_are_a_405_that_says_which(server, method, path, want):
    reply = await server.ask(method, path)
    assert (reply.status, reply.headers["Allow"], reply.json["code"]) == (405, want, "MethodNotAllowed")


async def test_probes_may_use_head(server):
    reply = await server.ask("HEAD", "/healthz")
    assert (reply.status, reply.text) == (200, "")


@pytest.mark.parametrize("listen", ["localhost:0", "[::1]:0", ":0"])
async def test_every_kind_of_address_is_served_under_a_name_of_the_certificate(tmp_path, listen):
    async with running(tmp_path, listen=listen) as server:
        assert (await server.ask("GET", "/healthz")).status == 200
        (line,) = server.lines("listening")
        assert len({address.rpartition(":")[2] for address in line["addresses"]}) == 1
