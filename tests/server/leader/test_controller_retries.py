"""The leader requests retries from controllers once there is room for their pods, and not before."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.core.support import make
from tests.server.support.harness import until
from tests.server.support.leader_context import leader_context
from webhook.cluster.api.client import connect
from webhook.cluster.watch.event_stream import PATH
from webhook.core.model.policy import Defaults
from webhook.kube.objects import bounds
from webhook.observe.logs import LineWriter, LogFormat, Logs
from webhook.server.leader.retries import Retrier

JOBS, RETRY = "/apis/batch/v1/jobs", "fairgate.dev/retry-at"


class Stage:
    """A fake cluster, a world with a team that may have eight GPUs, and what the leader does."""

    def __init__(self, api, retrier, world):
        self.api, self.retrier, self.world = api, retrier, world
        self.is_leading = True
        self.woken = 0

    def job(self, name="train", *, gpus=1, parallelism=1, namespace="team-a", **status):
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
        template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        spec = {"parallelism": parallelism, "template": template}
        head = {"apiVersion": "batch/v1", "kind": "Job"}
        return self.api.put(JOBS, name, namespace=namespace, spec=spec, status=status, **head)["metadata"]["uid"]

    def refused(self, name, uid, *, namespace="team-a", kind="Job", api_version="batch/v1", number=1, **more):
        owner = {"apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace, "uid": uid}
        body = {"reason": "Refused", "reportingComponent": "fairgate", "involvedObject": owner} | more
        self.api.put(PATH, f"{name}.{number}", namespace=namespace, **body)

    async def noted(self, count=1):
        await until(lambda: len(self.retrier._retries) == count)

    def patched(self):
        return {key for key, job in self.api.objects[JOBS].items() if RETRY in job["metadata"].get("annotations", {})}

    def fill(self):
        self.world.set_pod(make.resident(8, uid="holder", node="n0"))

    def free(self):
        self.world.remove_pod("holder")


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path, Defaults()) as made:
        yield made


@asynccontextmanager
async def staged(folder, defaults):
    async with FakeApi().serving() as api, await connect(write_kubeconfig(folder / "k", api.url)) as connection:
        world = make.world(make.policy(make.team(limit_=8), defaults=defaults))
        with (folder / "log").open("wb") as log:
            logs = Logs(LineWriter(log.fileno()), log_format=LogFormat.JSON)
            made = Stage(api, None, world)
            context = leader_context(world, connection=connection, logs=logs, is_leading=lambda: made.is_leading)
            made.retrier = Retrier(context, wake=lambda: None, clock=lambda: 0.0)
            task = asyncio.create_task(made.retrier.watch_refusals())
            try:
                if defaults.retry_refused:
                    await made.retrier._stream.is_following.wait()
                yield made
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def test_a_refused_job_is_retried_only_once_there_is_room(stage):
    stage.fill()
    stage.refused("train", stage.job())
    await stage.noted()
    for _ in range(3):
        await stage.retrier.request_due()
    assert stage.patched() == set()
    stage.free()
    await stage.retrier.request_due()
    assert stage.patched() == {"team-a/train"}
    assert stage.retrier.requested == 1
    await stage.retrier.request_due()
    assert stage.api.count("patch") == 1
    assert stage.api.count("get") == 1


async def test_the_controller_is_patched_and_not_the_topmost_owner(stage):
    uid = stage.job("nightly-1")
    related = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly-1", "uid": uid}
    stage.refused("nightly", "u-cron", kind="CronJob", related=related)
    await stage.noted()
    await stage.retrier.request_due()
    assert stage.patched() == {"team-a/nightly-1"}


async def test_only_as_many_controllers_retry_as_there_is_room_for(stage):
    for name in ("a", "b", "c"):
        stage.refused(name, stage.job(name, gpus=2, parallelism=2))
    await stage.noted(3)
    for _ in range(3):
        await stage.retrier.request_due()
    assert len(stage.patched()) == 2


async def test_controllers_that_miss_no_pod_or_are_gone_are_dropped(stage):
    stage.refused("done", stage.job("done", active=1))
    stage.refused("gone", "u7")
    stage.refused("another", stage.job("another") + "-before")
    await stage.noted(3)
    await stage.retrier.request_due()
    assert (stage.patched(), len(stage.retrier._retries)) == (set(), 0)


async def test_a_former_leader_requests_no_retry(stage):
    stage.refused("train", stage.job())
    await stage.noted()
    stage.is_leading = False
    await stage.retrier.request_due()
    assert stage.patched() == set()


async def test_a_missing_right_has_no_other_effect(stage):
    stage.api.always["patch"] = Answer(403)
    stage.refused("train", stage.job())
    await stage.noted()
    await stage.retrier.request_due()
    assert (stage.patched(), len(stage.retrier._retries)) == (set(), 0)


async def test_policy_turns_it_off(tmp_path):
    async with staged(tmp_path, Defaults(retry_refused=False)) as stage:
        stage.refused("train", stage.job())
        await stage.retrier.request_due()
        assert stage.api.asked == []


async def test_policy_turns_it_off_while_it_watches(stage):
    stage.refused("train", stage.job())
    await stage.noted()
    stage.world.set_policy(replace(stage.world.policy, defaults=Defaults(retry_refused=False)))
    await stage.retrier.request_due()
    assert stage.patched() == set()


async def test_an_event_that_a_tenant_forged_reaches_no_other_namespace(stage):
    victim = stage.job("train", namespace="team-b")
    related = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": victim, "namespace": "team-b"}
    stage.refused("train", victim, namespace="team-a", related=related)
    stage.refused("../../team-b/jobs/train", victim, number=2)
    await stage.noted(2)
    await stage.retrier.request_due()
    assert stage.patched() == set()
    paths = {asked.path for asked in stage.api.asked if asked.verb in ("get", "patch")}
    assert all("team-b" not in path for path in paths)


async def test_an_invalid_object_is_not_a_bug(stage):
    uid = stage.api.put(JOBS, "odd", namespace="team-a", spec=json.loads("[]"))["metadata"]["uid"]
    stage.refused("odd", uid)
    await stage.noted()
    await stage.retrier.request_due()
    assert stage.patched() == set()


async def test_an_object_that_is_too_large_is_not_read(stage):
    uid = stage.job(parallelism=4)
    stage.api.objects[JOBS]["team-a/train"]["spec"]["note"] = "x" * bounds.LARGE_BYTES
    stage.refused("train", uid)
    await stage.noted()
    await stage.retrier.request_due()
    await stage.noted(0)
    assert stage.patched() == set()
