"""The schema of TeamLedgers."""

import json
from fractions import Fraction

from tests.core.support.make import gpus, resident, world
from webhook.core.explain.team_rows import ledger_row
from webhook.core.model.amounts import DepartmentName, GpuModel, NodeName, TeamName, User
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.decision import Charge
from webhook.core.model.demand import ClaimRef
from webhook.core.model.pod import Owner
from webhook.core.quota.charges import InFlightCharge, LedgerRecord
from webhook.core.quota.usage import Moves
from webhook.kube.ledger.team_ledger import encode, team_ledger_crd
from webhook.kube.objects import keys

A = TeamName("team-a")


def test_the_schema_has_every_field_that_is_written():
    (version,) = team_ledger_crd()["spec"]["versions"]
    assert f"{keys.OWN_GROUP}/{version['name']}" == keys.OWN_API
    parts = version["schema"]["openAPIV3Schema"]["properties"]
    pod = resident(
        1,
        uid="u",
        owner=Owner("Job", "train"),
        user=User("ada"),
        node=NodeName("n0"),
        packed=pack({"app": "train"}),
        gang="ns/g",
        claims=(ClaimRef(claim="shared"),),
    )
    charge = Charge(TeamName("b"), Tier.GUARANTEED, gpus(1) + Fraction(2, 3), GpuModel("A100"), User("ada"))
    flights = {pod.uid: InFlightCharge(pod, charge, NodeName("n0"), 35, 99, takes_back=True)}
    moves = Moves(1, DepartmentName("left"), {DepartmentName("right"): 2}, {A: 1})
    sent = json.loads(encode(LedgerRecord(flights, moves=moves), ledger_row(A, world()), version=0))
    assert sent["status"].keys() <= parts["status"]["properties"].keys()
    assert sent["ledger"].keys() == parts["ledger"]["properties"].keys()
    (entry,) = sent["ledger"]["inFlight"]
    assert entry.keys() == parts["ledger"]["properties"]["inFlight"]["items"]["properties"].keys()
