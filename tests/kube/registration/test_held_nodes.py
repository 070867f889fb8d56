"""Held nodes as the API server reads them."""

import json
import re
from fnmatch import fnmatchcase

import pytest

from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import LabelSelector
from webhook.core.reclaim.holds import HeldNodes
from webhook.kube.registration.registration import pattern_of
from webhook.kube.registration.static_files import create_body, held_nodes_crd, replace_patch

HELD = HeldNodes(
    {NodeName("n1"): (Uid("u1"),)},
    ("a", "b-*"),
    (LabelSelector((Requirement("team", Operator.NOT_IN, ("x",)),)),),
    ("ci-?",),
)


def test_the_object_agrees_with_the_patch_and_has_all_required_fields():
    made = json.loads(create_body(HELD))
    [change] = json.loads(replace_patch(HELD))
    assert (change["op"], change["path"], change["value"]) == ("add", "/spec", made["spec"])
    assert made["spec"] == {
        "nodes": {"n1": ["u1"]},
        "namespaces": ["a"],
        "namespacePatterns": ["^b-.*$"],
        "namespaceSelectors": [[{"key": "team", "operator": "NotIn", "values": ["x"]}]],
        "exemptPatterns": ["^ci-.$"],
    }
    [version] = held_nodes_crd()["spec"]["versions"]
    assert set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"]) == made["spec"].keys()


@pytest.mark.parametrize("glob", ["a", "a-*", "*", "a?c", "a[bc]d", "a[!b]", "kube-*"])
@pytest.mark.parametrize("name", ["a", "a-", "a-b", "abc", "abd", "ac", "ab", "kube-system", "xkube-system"])
def test_a_glob_means_the_same_to_the_api_server(glob, name):
    assert bool(re.search(pattern_of(glob), name)) == fnmatchcase(name, glob)
