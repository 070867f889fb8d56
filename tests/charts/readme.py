"""The chart's README, from its head and the comments of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

HEAD = """\
# Fairgate's Helm chart
Installs the webhooks (`fairgate serve`) with [the evictor](../../docs/reclaim.md) as a sidecar, once in a cluster.
Run the commands in the root of the repository, with Helm 3.14 or newer. [Installing](../../docs/install.md) explains it
step by step, including the image.

```console
$ helm upgrade --install fairgate charts/fairgate --namespace fairgate-system --create-namespace \\
    --set-file policy=policy.yaml
```
`helm show values charts/fairgate` prints the values with their comments. [Operations](../../docs/operate.md) has
rights, probes, certificates and what to do about failures.

## Changing the policy, and other values
```console
$ helm upgrade fairgate charts/fairgate --namespace fairgate-system --reset-then-reuse-values \\
    --set-file policy=policy.yaml
$ helm upgrade fairgate charts/fairgate --namespace fairgate-system --reset-then-reuse-values --set enforce=warn
```
- `--reset-then-reuse-values` keeps what you have set and uses the chart's defaults for all other values. Do not use
  `--reuse-values`: it leaves out the defaults of values that are new in the chart.
- **A broken policy changes nothing.** Before helm installs or upgrades, a Job runs `fairgate policy check` with the
  image of the release (`policyCheck`). If it fails, so does helm, and the problems are in its log:
  `kubectl logs --namespace fairgate-system job/fairgate-policy-check`. Run the same check yourself
  first: `fairgate policy check policy.yaml`, and `fairgate policy diff` for [what an edit would do to running
  pods](../../docs/looking.md#a-policy-and-a-cluster).
- **No restart is needed.** The policy is a ConfigMap. Pods read an edit of it within about a minute; the leader then
  updates the conditions of the webhooks ([ADR 16](../../docs/adr/0016-registration-follows-policy.md)).
- With **an existing ConfigMap** (`existingPolicyConfigMap`), edit that with `kubectl apply` or GitOps. A broken edit is
  rejected, the last good policy stays in force, and the alert `FairgatePolicyRefused` fires.

## What helm does to the cluster
- **Installing**: no webhook fails closed before a server answers. The webhooks that will (`failurePolicy: Fail`) are
  installed with `Ignore`, and the leader sets `Fail` once it is ready and the API server has its CA. Tools that compare
  the rendered objects with the live ones must ignore `failurePolicy`, `caBundle`, `rules`, `matchConditions` and
  `namespaceSelector` of the webhook configurations.
- **Uninstalling** (`helm uninstall fairgate --namespace fairgate-system`): before helm deletes anything, a Job
  (`uninstall`) deletes webhooks and guards, lets go the pods in line, opens held nodes, stops the servers, and deletes
  what helm would leave: definitions (which helm lists as kept), Leases, the Secret with the certificates. [Each
  step](../../docs/operate.md#uninstalling). The history's volumes stay. `helm template` does not print the Job, as
  it would uninstall where it is applied; `--api-versions fairgate.dev/uninstall` does.
- **From `kubectl apply` to Helm**: objects of `fairgate manifests` have the same names. Add `--take-ownership` to the
  first `helm install`.

## Values
| value | default | meaning |
|---|---|---|
"""


def readme(chart: Path) -> str:
    """The text of the README."""
    rows = (f"| `{path}` | `{default}` | {meaning} |\n" for path, default, meaning in described_values(chart))
    return HEAD + "".join(rows)


def described_values(chart: Path) -> Iterator[tuple[str, str, str]]:
    """Every value with its default and its comment, in the order of values.yaml."""
    text = (chart / "values.yaml").read_text()
    values = yaml.safe_load(text)
    parents: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if found := re.match(r" *# (?:-- )?(.*)", line):
            comment.append(found[1])
        elif found := re.match(r"( *)(\w+):", line):
            del parents[len(found[1]) // 2 :]
            parents.append(found[2])
            if comment:
                yield ".".join(parents), _default(values, parents), " ".join(comment)
                comment = []


def _default(values: dict, path: list[str]) -> str:
    found: object = values
    for key in path:
        found = found[key]  # type: ignore[index]  # the path comes from the same file
    return json.dumps(found)
