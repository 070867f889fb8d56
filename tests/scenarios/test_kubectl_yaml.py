"""The table of scalars that manifests are read by (tests/cases/kubectl_yaml.json), asked of the real kubectl."""

import json

import pytest

from tests.test_yaml_scalars import KUBECTL, as_kubernetes_keeps

pytestmark = pytest.mark.cluster
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\n"


def as_read(cluster, text):
    """What kubectl makes of fields of an object that it does not send anywhere."""
    done = cluster.kubectl.run("label", "--local", "-f", "-", "a=b", "-o", "json", stdin=f"{HEAD}{text}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_int=as_kubernetes_keeps)


def test_kubectl_reads_each_value_as_the_table_says(control_plane):
    values = KUBECTL["values"]
    found = as_read(control_plane, "".join(f"v{number}: {text}\n" for number, text in enumerate(values)))
    assert {text: found[f"v{number}"] for number, text in enumerate(values)} == values


def test_kubectl_makes_the_keys_of_the_table(control_plane):
    found = as_read(
        control_plane, "".join(f"v{number}: {{{text}: x}}\n" for number, text in enumerate(KUBECTL["keys"]))
    )
    assert [next(iter(found[f"v{number}"])) for number in range(len(KUBECTL["keys"]))] == list(KUBECTL["keys"].values())


@pytest.mark.parametrize("text", KUBECTL["refused"])
def test_kubectl_refuses_what_the_table_says(control_plane, text):
    done = control_plane.kubectl.run("label", "--local", "-f", "-", "a=b", "-o", "json", stdin=f"{HEAD}v: {text}\n")
    assert done.returncode != 0
    assert "error converting YAML to JSON" in done.stderr
