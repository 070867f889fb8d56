"""Annotations that are read of pods are kept wherever pods are reduced to what is read."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from webhook.kube.objects import keys

SOURCE = Path(keys.__file__)


def described(beginnings):
    """Return the constants whose documentation begins so."""
    found = []
    body = ast.parse(SOURCE.read_text()).body
    for made, text in pairwise(body):
        is_described = isinstance(made, ast.AnnAssign) and isinstance(text, ast.Expr)
        if is_described and str(text.value.value).startswith(beginnings):
            found.append(made.target.id)
    return found


@pytest.mark.parametrize("name", described(("Pod annotation", "Node annotation", "Annotation of a pod or")))
def test_an_annotation_of_pods_and_nodes_is_kept(name):
    assert getattr(keys, name) in keys.STORED_ANNOTATIONS


def test_annotations_are_described():
    assert len(described(("Pod annotation",))) > 12
