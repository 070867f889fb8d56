import dataclasses
import re
from pathlib import Path

import pytest

from tests.control_plane.assets import (
    GOMOD,
    cache_root,
    envtest_folder,
    find_binary,
    installed_asset,
    missing_binaries,
    recipe_folder,
    recipe_key,
)
from tests.control_plane.versions import (
    CONTROL_PLANE,
    ETCD,
    KUBERNETES,
    OPERATORS,
    OTHER_MINORS,
    TRAINING_OPERATOR,
)


def put_binary(path: Path, *, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/true\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/fairgate/control-plane", id="XDG_CACHE_HOME is used"),
        pytest.param({"HOME": "/h"}, "/h/.cache/fairgate/control-plane", id="without it the home folder is"),
        pytest.param({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/fairgate/control-plane", id="empty is not set"),
        pytest.param({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "/h/.cache/fairgate/control-plane", id="relative is not"),
    ],
)
def test_cache_folder(environ, want):
    assert cache_root(environ) == Path(want)


@pytest.fixture
def gomod(tmp_path):
    folder = tmp_path / "gomod" / ETCD.name
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module m\n")
    (folder / "go.sum").write_text("a v1 h1:x\n")
    return tmp_path / "gomod"


def test_key_is_the_same_for_the_same_pins(gomod):
    assert recipe_key(ETCD, target="linux-amd64", gomod=gomod) == recipe_key(ETCD, target="linux-amd64", gomod=gomod)


@pytest.mark.parametrize("name", ["go.mod", "go.sum"])
def test_key_changes_with_a_pinned_file(gomod, name):
    before = recipe_key(ETCD, target="linux-amd64", gomod=gomod)
    (gomod / ETCD.name / name).write_text("changed\n")
    assert recipe_key(ETCD, target="linux-amd64", gomod=gomod) != before


def test_key_changes_with_target_and_flags(gomod):
    keys = {
        recipe_key(ETCD, target="linux-amd64", gomod=gomod),
        recipe_key(ETCD, target="linux-arm64", gomod=gomod),
        recipe_key(dataclasses.replace(ETCD, ldflags=""), target="linux-amd64", gomod=gomod),
    }
    assert len(keys) == 3


def test_key_of_an_operator_changes_with_its_checksum():
    upstream = dataclasses.replace(TRAINING_OPERATOR.upstream, checksum="h1:other")
    other = dataclasses.replace(TRAINING_OPERATOR, upstream=upstream)
    assert recipe_key(other, target="linux-amd64") != recipe_key(TRAINING_OPERATOR, target="linux-amd64")


def test_every_recipe_has_a_folder_of_its_own(tmp_path):
    recipes = (*CONTROL_PLANE, *OPERATORS)
    assert len({recipe_folder(recipe, root=tmp_path) for recipe in recipes}) == len(recipes)


@pytest.mark.parametrize("recipe", dict.fromkeys([*CONTROL_PLANE, *OTHER_MINORS]), ids=lambda recipe: recipe.name)
def test_go_mod_pins_the_version_that_the_recipe_names(recipe):
    text = (GOMOD / recipe.name / "go.mod").read_text()
    module = {"etcd": "go.etcd.io/etcd/server/v3", "kwok": "sigs.k8s.io/kwok"}.get(recipe.name, "k8s.io/kubernetes")
    assert re.search(rf"^require {re.escape(module)} v{re.escape(recipe.version)}$", text, re.MULTILINE)


def test_kubebuilder_assets_holds_the_binary(tmp_path):
    want = put_binary(tmp_path / "etcd")
    assert installed_asset("etcd", "1.37.0", {"KUBEBUILDER_ASSETS": str(tmp_path), "HOME": "/h"}) == want


@pytest.mark.parametrize(
    ("assets", "mode"),
    [
        pytest.param("", 0o755, id="not set"),
        pytest.param("elsewhere", 0o755, id="set to a folder without it"),
        pytest.param(".", 0o644, id="not executable"),
    ],
)
def test_kubebuilder_assets_does_not_hold_the_binary(tmp_path, assets, mode):
    put_binary(tmp_path / "etcd", mode=mode)
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / assets) if assets else "", "HOME": "/h"}
    assert installed_asset("etcd", "1.37.0", environ) is None


@pytest.mark.parametrize(
    "environ", [{"HOME": ""}, {"XDG_DATA_HOME": ".local/share", "HOME": "/h"}], ids=["home", "XDG"]
)
def test_what_setup_envtest_put_into_its_own_folder_is_found_by_its_version(tmp_path, environ):
    environ = {name: str(tmp_path / path) for name, path in environ.items()}
    want = put_binary(tmp_path / ".local/share/kubebuilder-envtest/k8s" / envtest_folder("1.37.0").name / "etcd")
    assert installed_asset("etcd", "1.37.0", environ) == want
    assert installed_asset("etcd", "1.36.5", environ) is None
    assert re.fullmatch(r"1\.37\.0-[a-z]+-\w+", envtest_folder("1.37.0").name)


def test_assets_are_not_taken_for_another_minor(tmp_path):
    put_binary(tmp_path / "assets" / "kube-apiserver")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    assert find_binary(KUBERNETES, "kube-apiserver", root=tmp_path, environ=environ)
    assert find_binary(OTHER_MINORS[0], "kube-apiserver", root=tmp_path, environ=environ) is None


def test_assets_win_over_the_cache(tmp_path):
    put_binary(recipe_folder(ETCD, root=tmp_path) / "etcd")
    want = put_binary(tmp_path / "assets" / "etcd")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    assert find_binary(ETCD, "etcd", root=tmp_path, environ=environ) == want


def test_cache_is_used_without_assets(tmp_path):
    want = put_binary(recipe_folder(ETCD, root=tmp_path) / "etcd")
    assert find_binary(ETCD, "etcd", root=tmp_path, environ={}) == want


def test_operators_are_never_taken_from_assets(tmp_path):
    put_binary(tmp_path / "training-operator")
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path)}
    assert find_binary(TRAINING_OPERATOR, "training-operator", root=tmp_path / "cache", environ=environ) is None


def test_only_what_assets_and_cache_lack_is_missing(tmp_path, monkeypatch):
    put_binary(tmp_path / "assets" / "kube-apiserver")
    put_binary(recipe_folder(KUBERNETES, root=tmp_path) / "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert missing_binaries(KUBERNETES, root=tmp_path) == ("kube-controller-manager", "kube-scheduler")


def test_kubernetes_is_stamped_with_its_version():
    for recipe in (KUBERNETES, *OTHER_MINORS):
        assert recipe.ldflags.count(f"gitVersion=v{recipe.version}") == 2
        assert recipe.ldflags.count(f"gitMinor={recipe.version.split('.')[1]}") == 2
