"""The definition of Report describes every field that Fairgate writes into one."""

import msgspec

from webhook.kube.ledger.reports import PATH, PolicyReport, ReplicaReport, report_crd


def schema():
    [version] = report_crd()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def fields(struct):
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def required(struct):
    return {field.encode_name for field in msgspec.structs.fields(struct) if field.required}


def test_the_schema_has_the_fields_of_a_report():
    """The API server drops fields that the schema does not have."""
    policy, replica = schema()["policy"], schema()["replicas"]["additionalProperties"]
    assert set(policy["properties"]) == fields(PolicyReport)
    assert set(replica["properties"]) == fields(ReplicaReport)
    assert set(policy["required"]) == required(PolicyReport)
    assert set(replica["required"]) == required(ReplicaReport)


def test_the_definition_serves_the_path_that_reports_are_written_to():
    definition = report_crd()
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    [version] = definition["spec"]["versions"]
    assert f"/apis/{group}/{version['name']}/{plural}" == PATH
    assert definition["metadata"]["name"] == f"{plural}.{group}"
    assert definition["spec"]["scope"] == "Cluster", "no namespace admin may forge one"
