"""The Leases of servers and evictors, and whether their holders still renew them."""

import time

from tests.cluster.support.fake_api import Answer
from webhook.cluster.reads.installation import ReadForbidden, read_installation
from webhook.kube.ledger.reports import written_at
from webhook.kube.objects import keys

LEASES = f"/apis/{keys.LEASE_API}/leases"


def held(api, name, holder, *, age):
    renewed = written_at(time.time() - age).replace("Z", ".000000Z")  # a MicroTime, as Leases have it
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    api.put(LEASES, name, namespace="fairgate-system", spec=spec)


async def leases(connection):
    return {each.name: each for each in (await read_installation(connection)).leases.value}


async def test_a_lease_that_is_renewed_is_not_stuck_and_one_that_is_not_is(api, connection):
    held(api, keys.SERVER_LEASE, "pod-1_a", age=0)
    held(api, keys.EVICTOR_LEASE, "pod-1_b", age=6)
    found = await leases(connection)
    assert (found["fairgate"].holder, found["fairgate"].is_stuck) == ("pod-1_a", False)
    assert (found["fairgate-evictor"].holder, found["fairgate-evictor"].is_stuck) == ("pod-1_b", True)
    assert found["fairgate-evictor"].age_seconds >= 5


async def test_one_without_a_holder_is_left_out_and_a_missing_right_is_named(api, connection):
    held(api, keys.SERVER_LEASE, "", age=0)
    assert await leases(connection) == {}
    api.always["list"] = Answer(403)
    assert (await read_installation(connection)).leases == ReadForbidden("list leases")
