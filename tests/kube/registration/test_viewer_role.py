"""The role of viewers: it reads exactly what Fairgate publishes and registers."""

from webhook.core.model.policy import Policy
from webhook.kube.registration.guards import guards
from webhook.kube.registration.inventory import PLURALS
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.registration.static_files import viewer_role


def test_every_registered_object_can_be_read():
    made = [*guards(Policy()), *webhook_configurations(Policy(), ca_bundle_pem=None, url="https://h")]
    allowed = {
        (resource, name)
        for rule in viewer_role()["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    names = {each["metadata"]["name"] for each in guards(Policy())}
    assert {(PLURALS[each["kind"]], each["metadata"]["name"]) for each in made} <= allowed
    assert {name for resource, name in allowed if "policies" in resource} == names


def test_it_only_reads_and_is_part_of_view():
    role = viewer_role()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
