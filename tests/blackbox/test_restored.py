"""A server or an evictor whose cluster was put back to a backup of etcd ends, to be started again."""

import asyncio
import re

import pytest

from tests import forks
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import until, write_kubeconfig

POLICY = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams: [{name: a, namespaces: [a], gpus: {limit: 1}}]\n"


@pytest.mark.parametrize("command", ["serve", "evict"])
async def test_a_process_ends_with_one_line_once_etcd_was_restored(tmp_path, command):
    (tmp_path / "policy.yaml").write_text(POLICY)
    arguments = ["--policy", tmp_path / "policy.yaml", "--namespace", "fairgate-system"]
    arguments += ["--listen", "127.0.0.1:0", "--certs", tmp_path / "certs"] if command == "serve" else []
    async with FakeApi().serving() as api:
        arguments += ["--kubeconfig", write_kubeconfig(tmp_path / "kubeconfig", api.url)]
        running = asyncio.create_task(asyncio.to_thread(forks.run, "webhook", command, *arguments))
        await until(lambda: len(api.watchers) > 4)
        api.put("/api/v1/namespaces", "a")
        api.restore(50)
        result = await running
    assert result.returncode == 1, result
    want = r"fairgate: stopped, to start again .*: [a-z ]+ are at resourceVersion \d+, and 1\d+ was seen before: .*"
    assert re.fullmatch(want, result.stderr.splitlines()[-1]), result.stderr
    assert "Traceback" not in result.stderr
