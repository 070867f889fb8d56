"""A healthy installation as `doctor` reads it, of which tests change parts."""

from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from certs.authority import certificate_to_pem, make_ca, make_leaf, new_key
from webhook.cli.doctor.run import Observations, judge
from webhook.cluster.reads.installation import InstallationState, ProductsFound, ReadValue
from webhook.kube.ledger.reports import ROOM_FORMAT, PolicyReport, ReplicaReport, Report, RoomReport, written_at
from webhook.kube.objects.keys import ServerVersion
from webhook.kube.registration.guards import guards
from webhook.kube.registration.inventory import Probe, ProbeOutcome
from webhook.kube.registration.registration import ServiceReference, webhook_configurations
from webhook.policy.build import published
from webhook.policy.watch import parse

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOST = "fairgate.fairgate-system.svc"
DOCUMENT = b"""apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams: [{name: vision, namespaces: [vision], gpus: {guaranteed: 4, limit: 8}}]
idle: {prometheus: {url: "http://prometheus:9090"}, series: {job: dcgm}}
"""
FILES = {"policy.yaml": DOCUMENT}
POLICY = parse(FILES, origin="here")


class Issuer:
    """A CA that issues certificates."""

    def __init__(self):
        self.ca = make_ca(new_key(), now=NOW - timedelta(days=200))
        self.pem = certificate_to_pem(self.ca.certificate)

    def leaf(self, *hosts, age=timedelta(days=1)):
        made = make_leaf(
            self.ca, key=new_key().public_key(), hosts=hosts or (HOST,), now=NOW - age, lifetime=timedelta(days=90)
        )
        return certificate_to_pem(made).decode()


ISSUER = Issuer()
LEAF = ISSUER.leaf()


def process(component="server", *, age=3, **more):
    fields = {
        "component": component,
        "at": written_at(NOW.timestamp() - age),
        "version": "1",
        "policy": POLICY.hash,
        "enforce": "enforce",
        "certificate": LEAF if component == "server" else "",
    }
    return ReplicaReport(**fields | more)


def processes(**more):
    return {
        "pod-1_a": process(leading=True, autoscaling="none found; pools that grow: none; others: all nodes"),
        "pod-2_b": process(),
        "pod-1_c": process("evictor", leading=True),
        "pod-2_d": process("evictor"),
    } | more


def replicas(**entries):
    """Processes with some replaced by others; None: absent."""
    found = processes() | {name.replace("__", "-"): each for name, each in entries.items()}
    return {"replicas": ReadValue(Report(replicas={name: each for name, each in found.items() if each is not None}))}


def configurations(policy=POLICY, *, ca=ISSUER.pem):
    made = webhook_configurations(policy, ca_bundle_pem=ca, service=ServiceReference("fairgate-system", "fairgate"))
    found = {each["metadata"]["name"]: ReadValue(each) for each in made}
    return {name: found.get(name, ReadValue(None)) for name in ("zz-fairgate", "fairgate")}


def guard_objects(policy=POLICY):
    return {(each["kind"], each["metadata"]["name"]): ReadValue(each) for each in guards(policy)}


def report(policy=POLICY, files=FILES, **more):
    return Report(policy=PolicyReport(policy.hash, policy.enforce.value, published(files), **more))


def room(*, age=10, **more):
    found = RoomReport(written_at(NOW.timestamp() - age), ROOM_FORMAT, nodes=4, pods=7, content="x")
    return Report(room=msgspec.structs.replace(found, **more))


def evidence(**more):
    parts = {
        "now": NOW.timestamp(),
        "replicas": ReadValue(Report(replicas=processes())),
        "policy": ReadValue(report()),
        "room": ReadValue(room()),
        "configurations": configurations(),
        "guards": guard_objects(),
        "served": ReadValue(frozenset({"teamledgers", "reports", "heldnodes"})),
        "ledgers": ReadValue([{"status": {"team": "vision"}}]),
        "deployments": ReadValue([]),
        "large_pods": ReadValue([]),
        "namespaces": ReadValue([]),
        "others": ProductsFound(),
        "version": ServerVersion(1, 37, "v1.37.0"),
    }
    return InstallationState(**parts | more)


HEALTHY = Observations(evidence(), POLICY, Probe(ProbeOutcome.YES), "vision", is_exempt=False)


def findings(observed=HEALTHY, **more):
    """The findings with these parts of the evidence replaced."""
    return judge(replace(observed, evidence=replace(observed.evidence, **more)))


def bundle(pem):
    return b64encode(pem).decode()
