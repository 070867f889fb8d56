"""The leader reads the size of a gang from the object that makes its pods."""

from dataclasses import replace

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.core.support import make
from tests.core.support.waiting import waiting
from webhook.cluster.api.client import connect
from webhook.core.model.constraints import Gang
from webhook.core.model.pod import Owner
from webhook.kube.pod.gangs import gang_of_controller
from webhook.server.leader.waiting_reasons import GangSizes

JOBS = "/apis/batch/v1/jobs"


class Learned:
    """Gangs of which one is to be read, and what was learned of it."""

    def __init__(self, pod):
        self.pod, self.plans = pod, []

    def unread(self, *, now):
        assert now == 100
        return [self.pod]

    def learn(self, gang, plan):
        self.plans.append(plan)
        return gang == self.pod.pod.gang.id


async def read(folder, *, change=None, gang_id=None, owner=None, spec=None):
    """Create a Job of three pods and one of its pods, change something, and return what is learned and reported."""
    async with FakeApi().serving() as api, await connect(write_kubeconfig(folder / "k", api.url)) as connection:
        made = spec or {"parallelism": 3, "completions": 3, "template": {"spec": builders.pod()["spec"]}}
        job = api.put(JOBS, "train", namespace="team-a", spec=made, apiVersion="batch/v1", kind="Job")
        gang = Gang(gang_id or gang_of_controller("team-a", "Job", job["metadata"]["uid"]), "Job train")
        member = waiting("train-0", gang=gang)
        member = replace(member, pod=member.pod._replace(owner=owner or Owner("Job", "train")))
        if change is not None:
            change(api)
        reported = []
        gangs = Learned(member)
        sizes = GangSizes(connection, make.world(), on_problem=lambda _pod, text: reported.append(text))
        await sizes.read(gangs, now=100)
        assert sizes.reads <= 2
        (plan,) = gangs.plans
        return plan, reported


async def test_the_job_says_how_many_pods_it_runs_at_a_time(tmp_path):
    plan, reported = await read(tmp_path)
    assert (plan.size, plan.source, reported) == (3, "Job train", [])


MPI = "team-a/training.kubeflow.org/job-name=mpi"
LARGE = {"parallelism": 3, "template": {"spec": builders.pod()["spec"]}, "note": "x" * 300_000}


@pytest.mark.parametrize(
    ("more", "want"),
    [
        (
            {"change": lambda api: api.delete(JOBS, "train", namespace="team-a")},
            "Job train is not there, or its kind is not installed",
        ),
        ({"change": lambda api: api.always.update(get=Answer(503))}, "Job train cannot be read (503)"),
        ({"change": lambda api: api.always.update(get=Answer(403))}, "Job train may not be read by Fairgate"),
        (
            {"gang_id": MPI, "owner": Owner("MPIJob", "mpi")},
            "MPIJob mpi is not there, or its kind is not installed",
        ),
        ({"gang_id": MPI, "owner": Owner("Workflow", "w")}, "the object that makes its pods is not known"),
        ({"spec": {"parallelism": "many"}}, "Job train says no size: parallelism is 'many'"),
        ({"spec": LARGE}, "and no more than 262,144 are read"),
    ],
    ids=["gone", "fails", "forbidden", "not served", "not known", "no number", "too large"],
)
async def test_otherwise_the_size_stays_unknown_and_it_is_said_why(tmp_path, more, want):
    plan, reported = await read(tmp_path, **more)
    assert plan.size == 0
    assert want in plan.problem
    assert plan.is_temporary is ("503" in want)
    assert reported == [f"gang Job train: {plan.problem}"]


async def test_a_job_of_the_same_name_that_was_created_again_is_another_one(tmp_path):
    def create_again(api):
        api.delete(JOBS, "train", namespace="team-a")
        api.put(JOBS, "train", namespace="team-a", spec={"parallelism": 9}, apiVersion="batch/v1", kind="Job")

    plan, _ = await read(tmp_path, change=create_again)
    assert plan.problem == "Job train is another one than that of its pods"
