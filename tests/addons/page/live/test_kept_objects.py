"""Kept objects: what explanations need of them, and bounds on what tenants write."""

import pytest

from tests import builders as b
from webhook.addons.page.live import cluster_state
from webhook.addons.page.live.cluster_state import LARGEST, KeptObjects


def test_an_object_is_kept_by_its_name_without_what_nothing_reads():
    kept = KeptObjects()
    pod = b.pod("p", annotations={"fairgate.dev/evict-at": "x", "secret": "s"}, controller=("Job", "j"))
    pod["status"] = {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    kept.set(pod)
    found = kept.get("Pod", "vision/p")
    assert found["metadata"]["annotations"] == {"fairgate.dev/evict-at": "x"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-of-j"
    assert found["status"]["conditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert "image" not in found["spec"]["containers"][0]
    assert [each["kind"] for each in kept.of_kind("Pod")] == [each["kind"] for each in kept.all()] == ["Pod"]
    kept.remove("Pod", "vision/p")
    kept.remove("Pod", "vision/p")
    assert kept.get("Pod", "vision/p") is None


def test_a_huge_object_and_too_many_are_left_out(monkeypatch):
    kept = KeptObjects()
    kept.set(b.pod("huge", labels={f"k{number}": "v" * 60 for number in range(LARGEST // 60)}))
    assert (kept.get("Pod", "vision/huge"), kept.left_out) == (None, 1)
    monkeypatch.setattr(cluster_state, "MOST", 2_000)
    for number in range(50):
        kept.set(b.pod(f"p{number}"))
    assert 0 < len(kept) < 20
    assert len(kept) + kept.left_out == 51


@pytest.mark.parametrize("kind", ["Secret", 3])
def test_other_kinds_are_not_kept(kind):
    kept = KeptObjects()
    kept.set({"kind": kind, "metadata": {"name": "x"}})
    assert len(kept) == 0
