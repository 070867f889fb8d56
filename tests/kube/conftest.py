"""A decision with defaults."""

import pytest

from tests import builders as b
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, NodeChoice
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code, Reason


def admit_of(node_choice=None, *, team="vision", tier=Tier.GUARANTEED, gpus=2, **fields):
    return Admit(
        charge=Charge(team, tier, gpus * ONE_GPU, user="alice@example.com"),
        demand=b.demand(gpus),
        node_choice=node_choice or NodeChoice(Mode.AUTO, ("node-1", "node-2")),
        reason=Reason(Code.WITHIN_SHARE, "inside the share"),
        policy_hash="5eed",
        **fields,
    )


@pytest.fixture(scope="session")
def make_admit():
    return admit_of
