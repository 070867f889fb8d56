"""Where commands look for a cluster."""

from pathlib import Path

from webhook.cli.world_source import default_kubeconfig


def test_without_a_home_there_is_no_kubeconfig(monkeypatch, tmp_path):
    """As for a container's user that has no name, on OpenShift."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(Path, "home", _fails)
    assert default_kubeconfig() is None
    given = tmp_path / "config"
    given.touch()
    monkeypatch.setenv("KUBECONFIG", str(given))
    assert default_kubeconfig() == given


def _fails():
    raise RuntimeError("Could not determine home directory.")
