"""The definition of a kind: names that belong together, and columns only where there are some."""

from copy import deepcopy

import pytest

from webhook.kube.ledger.reports import column, definition, why_unfit
from webhook.kube.ledger.team_ledger import team_ledger_crd

SCHEMA = {"type": "object"}


def test_the_names_of_a_kind_belong_together():
    made = definition("TeamLedger", "teamledgers", SCHEMA)
    want = {"kind": "TeamLedger", "listKind": "TeamLedgerList", "plural": "teamledgers", "singular": "teamledger"}
    assert made["spec"]["names"] == want
    assert made["metadata"]["name"] == "teamledgers.fairgate.dev"


def test_columns_are_written_where_there_are_some():
    [version] = definition("Run", "runs", SCHEMA, columns=[column("Hash", ".hash", priority=1)])["spec"]["versions"]
    want = [{"name": "Hash", "type": "string", "jsonPath": ".hash", "priority": 1}]
    assert version["additionalPrinterColumns"] == want
    [bare] = definition("Run", "runs", SCHEMA)["spec"]["versions"]
    assert "additionalPrinterColumns" not in bare
    assert bare["schema"] == {"openAPIV3Schema": SCHEMA}


def changed(**more):
    """The definition of TeamLedgers with other fields of its spec, as found in a cluster."""
    made = deepcopy(team_ledger_crd())
    made["spec"] |= more
    return made


def version(**more):
    (made,) = deepcopy(team_ledger_crd())["spec"]["versions"]
    return made | more


def without(*path):
    """The version without one property of its schema."""
    made = version()
    schema = made["schema"]["openAPIV3Schema"]
    for key in path[:-1]:
        schema = schema["items"] if key == "[]" else schema["properties"][key]
    del schema["properties"][path[-1]]
    return made


OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (team_ledger_crd(), None),
        (changed(versions=[version(name="v1", storage=False), version()]), None),
        (changed(versions=[version(schema=OPEN)]), None),
        (changed(scope="Namespaced"), "it defines namespaced objects of kind TeamLedger"),
        (changed(names={"kind": "Ledger"}), "it defines cluster objects of kind Ledger"),
        (changed(versions=[version(name="v1")]), "it does not serve version v1alpha1"),
        (changed(versions=[version(served=False)]), "it does not serve version v1alpha1"),
        (changed(versions=[version(subresources={"status": {}})]), "its status is a subresource"),
        (changed(versions=[without("ledger")]), "it lacks the fields ledger"),
        (
            changed(versions=[without("ledger", "inFlight", "[]", "until")]),
            "it lacks the fields ledger.inFlight[].until",
        ),
        (
            changed(versions=[version(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}})]),
            "it lacks the fields status, ledger",
        ),
    ],
)
def test_why_a_definition_does_not_fit(found, want):
    assert why_unfit(found, team_ledger_crd()) == want
