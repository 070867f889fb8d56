"""Do the sums agree? An outsider's look at a cluster with kubectl alone; nothing of Fairgate's code is used.

    python tests/chaos/day/outsider.py KUBECTL KUBECONFIG PROCESSES

Prints what does not agree, one line each, and exits with status 1 if anything does not. PROCESSES are the servers and
evictors that should report.
"""

import collections
import datetime
import json
import subprocess
import sys
import time

import yaml

GPU, GATE, SILENT_SECONDS = "nvidia.com/gpu", "fairgate.dev/queue", 35


def read(kind):
    command = [*sys.argv[1:2], "--kubeconfig", sys.argv[2], "get", kind, "--all-namespaces", "--output=json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["items"]


def sums_of_pods():
    """What pods hold that are not over and not in line, by (team, tier) and by node."""
    by_team, by_node = collections.Counter(), collections.Counter()
    for pod in read("pods"):
        spec, labels = pod["spec"], pod["metadata"].get("labels", {})
        gpus = sum(int(each["resources"].get("limits", {}).get(GPU, 0)) for each in spec["containers"])
        is_in_line = any(gate["name"] == GATE for gate in spec.get("schedulingGates", ()))
        if pod["status"]["phase"] not in ("Succeeded", "Failed") and not is_in_line and gpus:
            by_team[labels.get("fairgate.dev/team"), labels.get("fairgate.dev/tier")] += gpus
            by_node[spec.get("nodeName")] += gpus
    return by_team, by_node


def differences(processes):
    by_team, by_node = sums_of_pods()
    yield from (f"{gpus} GPUs without team or tier: {of}" for of, gpus in by_team.items() if None in of)
    reports = {each["metadata"]["name"]: each for each in read("reports.fairgate.dev")}
    ledgers = {each["status"]["team"]: each["status"] for each in read("teamledgers.fairgate.dev")}
    for team in yaml.safe_load(reports["policy"]["policy"]["documents"])["teams"]:
        share, says = team["gpus"], ledgers.get(team["name"], {})
        owned, borrowed = by_team[team["name"], "guaranteed"], by_team[team["name"], "preemptible"]
        if owned + borrowed != int(says.get("used", -1)):
            yield f"pods of {team['name']} hold {owned} + {borrowed}, its ledger says {says}"
        if owned > share["guaranteed"] or owned + borrowed > share["limit"] or says.get("limit") != str(share["limit"]):
            yield f"pods of {team['name']} hold {owned} + {borrowed} of {share}, its ledger says {says}"
    for node in read("nodes"):
        has, holds = int(node["status"]["allocatable"].get(GPU, 0)), by_node[node["metadata"]["name"]]
        if holds > has:
            yield f"pods on {node['metadata']['name']} hold {holds} of {has}"
    found = reports["replicas"]["replicas"].values()
    ages = [time.time() - datetime.datetime.fromisoformat(each["at"]).timestamp() for each in found]
    fresh = [each for each, age in zip(found, ages, strict=True) if abs(age) < SILENT_SECONDS]
    leaders = sorted(each["component"] for each in fresh if each.get("leading"))
    if len(fresh) != processes or leaders != ["evictor", "server"]:
        yield f"{len(fresh)} processes report, {leaders} lead; reports are {[round(age) for age in ages]} s old"
    yield from (f"a {each['component']} is not ready: {each['notReady']}" for each in fresh if each.get("notReady"))


if __name__ == "__main__":
    wrong = [*differences(int(sys.argv[3]))]
    sys.exit("\n".join(wrong) or 0)
