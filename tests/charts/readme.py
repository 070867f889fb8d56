"""The chart's README, from its head and the comments of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

HEAD = """\
# Fairgate's Helm chart
Installs the webhooks (`fairgate serve`) with [the evictor](../../docs/evictor.md) as a sidecar, one release a cluster.

```console
$ helm install fairgate charts/fairgate --namespace fairgate-system --create-namespace --set-file policy=policy.yaml
$ helm upgrade fairgate charts/fairgate --namespace fairgate-system --reuse-values --set enforce=warn
$ helm uninstall fairgate --namespace fairgate-system
```
`helm show values charts/fairgate` prints the values with their comments. Rights, probes, certificates and what to do
when something fails are in [operations](../../docs/operations.md).

- **The policy** goes into a ConfigMap. Pods read an edit of it within a minute or so, without a restart; the leader
  then brings the conditions of the webhooks in line ([ADR 16](../../docs/adr/0016-registration-follows-policy.md)).
- **Uninstalling** takes the webhooks away first. What stays is the definition of TeamLedgers with the ledgers
  (`crds.keep`), the Leases and, without cert-manager, the Secret with the certificates: `kubectl delete` them. A node
  whose room the evictor kept stays closed until `kubectl taint nodes --all fairgate.dev/held-`.
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
