"""The chart's README, from its head and the comments of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

HEAD = """\
# Fairgate's Helm chart
Installs the webhooks (`fairgate serve`) with [the evictor](../../docs/concepts/reclaim.md) as a sidecar, once in a
cluster. Run the commands in the root of the repository, with Helm 3.14 or newer.
[Installing](../../docs/tasks/install.md) explains it step by step, including the image.

```console
$ helm upgrade --install fairgate charts/fairgate --namespace fairgate-system --create-namespace \\
    --set-file policy=policy.yaml
```
`helm show values charts/fairgate` prints the values with their comments. [Operations](../../docs/tasks/operate.md) has
rights, probes, certificates and what to do about failures.

## Changing the policy, and other values
```console
$ helm upgrade fairgate charts/fairgate --namespace fairgate-system --reset-then-reuse-values \\
    --set-file policy=policy.yaml
$ helm upgrade fairgate charts/fairgate --namespace fairgate-system --reset-then-reuse-values --set enforce=warn
```
- Do not use `--reuse-values`: it leaves out the defaults of new values.
- **A broken policy changes nothing.** A Job runs `fairgate policy check` first (`policyCheck`). Its log has the
  problems: `kubectl logs --namespace fairgate-system job/fairgate-policy-check`. `fairgate policy diff` says
  [what an edit would do](../../docs/tasks/looking.md#a-policy-and-a-cluster).
- **No restart is needed.** Pods read an edit within about a minute, and the leader updates the webhooks
  ([ADR 16](../../docs/adr/0016-registration-follows-policy.md)). So it is with `existingPolicyConfigMap`.

## What helm does to the cluster
- **Installing**: webhooks begin with `Ignore`; the leader sets `Fail` once a server answers. Tools that compare
  objects must ignore `failurePolicy`, `caBundle`, `rules`, `matchConditions` and `namespaceSelector` of the webhook
  configurations.
- **Uninstalling** (`helm uninstall fairgate --namespace fairgate-system`): a Job first takes Fairgate out of the
  cluster ([each step](../../docs/tasks/operate.md#uninstalling)). The history's volumes stay.
- **From `kubectl apply` to Helm**: add `--take-ownership` to the first `helm install`.

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
    return json.dumps(found, separators=(",", ":"))
