"""The definition of a kind: names that belong together, and columns only where there are some."""

from webhook.kube.ledger.definition import column, definition

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
