"""A process's ledger for small teams, with helpers for assertions."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress

from tests.core.support.make import gpus, policy, resident, team, world
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.ledger.ledger_objects import PATH
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, Deny, NotApplicable
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision, QuotaIndex

A = TeamName("team-a")
YES = NotApplicable(Reason(Code.COUNTED_ONLY, "charged"))
NO = Deny((Reason(Code.TEAM_LIMIT_EXCEEDED, "full"),))
PODS = "/api/v1/pods"


class Counts:
    def __init__(self):
        self.results, self.charges, self.withdrawn, self.waits = [], [], 0, 0

    def wrote(self, result, *, charges, seconds):
        assert seconds >= 0
        self.results.append(result)
        self.charges.append(charges)

    def waited(self, seconds):
        assert seconds > 0
        self.waits += 1

    def withdrew(self):
        self.withdrawn += 1


class Replica:
    """One process's ledger for teams with a limit of four GPUs or another one; a pod requests one."""

    def __init__(self, connection, *, limit=4):
        self.limit = gpus(limit)
        self.world = world(policy(team(guaranteed=limit, limit_=limit), team("team-b", limit_=limit)), nodes=[])
        self.counts, self.reached = Counts(), 0
        self.known = {}
        self.restored = []
        self.judged = Counter()
        self.quotas = QuotaIndex()
        self.ledger = ApiLedger(
            connection,
            self.world,
            reached=lambda: self.reached,
            recorder=self.counts,
            known=self.known.get,
            on_restored=self.restored.append,
            quotas=self.quotas,
        )
        self.is_gone = False

    def judge(self, uid, team_name=A):
        def decide():
            self.judged[uid] += 1
            if self.world.usage(team_name).total + gpus(1) > self.limit:
                return LedgerDecision(NO, None)
            pod = resident(1, uid=uid, namespace=team_name)
            return LedgerDecision(YES, InFlightCharge(pod, Charge(team_name, Tier.GUARANTEED, gpus(1)), None))

        return decide

    async def ask(self, uid, *, team_name=A, seconds=30.0):
        return await self.ledger.commit(
            self.judge(uid, team_name),
            deadline=asyncio.get_running_loop().time() + seconds,
            is_gone=lambda: self.is_gone,
        )

    def see(self, uid, *, version, team_name=A):
        self.world.set_pod(resident(1, uid=uid, namespace=team_name, version=version))
        self.reached = max(self.reached, version)


@asynccontextmanager
async def beside(work):
    """Run a task until the block ends; one that fails ends the block."""
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()


def in_flight(api, team_name="team-a"):
    return sorted(entry["uid"] for entry in api.objects[PATH][f"/{team_name}"]["ledger"]["inFlight"])
