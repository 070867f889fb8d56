"""The section `workloads`: what arrives in the core, and what is refused."""

import pytest

from webhook.core.model.policy import JobEvictions, OnWorkloadLimit, PodPath, WorkloadKind, WorkloadRules
from webhook.policy.documents import PolicyError
from webhook.policy.watch import load

KIND = "{group: example.com, kind: Run, resource: runs, pods: [{template: spec.template}]}"


def kinds(*each):
    return f"{{kinds: [{', '.join(each)}]}}"


def test_every_field_is_in_the_core_policy(folder):
    policy = load(
        folder("""
workloads:
  onLimit: reject
  jobEvictions: count
  kinds:
    - group: ml.example.com
      kind: Run
      resource: runs
      gang: true
      pods:
        - {role: head, template: spec.head}
        - {each: spec.workers, template: template, replicas: [replicas, hosts], default: 1}
        - {resources: spec.gpus, resource: amd.com/gpu, replicas: [$.spec.nodes], maximum: spec.scaler.max}
""")
    )
    head = PodPath("spec.head", role="head")
    workers = PodPath("template", ("replicas", "hosts"), each="spec.workers", default=1)
    bare = PodPath(replicas=("$.spec.nodes",), resources="spec.gpus", counted="amd.com/gpu", maximum="spec.scaler.max")
    kind = WorkloadKind("ml.example.com", "Run", "runs", (head, workers, bare), is_gang=True)
    assert policy.workloads == WorkloadRules(OnWorkloadLimit.REJECT, JobEvictions.COUNT, (kind,))


def test_the_order_of_kinds_does_not_matter(folder):
    both = [KIND, KIND.replace("Run", "Test")]
    hashes = {load(folder(f"workloads: {kinds(*order)}")).hash for order in (both, both[::-1])}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{onLimit: queue}", 'workloads.onLimit: expected one of warn, reject; got "queue"'),
        (kinds(KIND, KIND), "workloads.kinds: kind Run of example.com appears twice; keep one"),
        (
            kinds(KIND.replace("Run", "run")),
            "workloads.kinds[0].kind: expected at most 63 letters and digits, a capital first, such as PyTorchJob;"
            ' got "run"',
        ),
        (
            kinds(KIND.replace("spec.template", "'.spec.template'")),
            "workloads.kinds[0].pods[0].template: expected at most 253 names of fields with dots between, such as"
            ' spec.template; got ".spec.template"',
        ),
        (
            kinds(KIND.replace("example.com", "''")),
            "workloads.kinds[0].group: expected at most 253 lower-case letters, digits, - and .,"
            ' such as batch.volcano.sh; got ""',
        ),
        (
            kinds(KIND.replace("runs", "Runs")),
            "workloads.kinds[0].resource: expected at most 63 lower-case letters and digits, such as pytorchjobs;"
            ' got "Runs"',
        ),
        (
            kinds(KIND.replace("template: spec.template", "replicas: [spec.n]")),
            "workloads.kinds[0].pods[0]: write template where the object has pods, or resources where it has none",
        ),
        (
            kinds(KIND.replace("template: spec.template", "template: spec.template, resources: spec.gpus")),
            "workloads.kinds[0].pods[0]: write template where the object has pods, or resources where it has none",
        ),
        (
            kinds("{group: example.com, kind: Run, resource: runs, pods: []}"),
            "workloads.kinds[0].pods: expected at least one item",
        ),
    ],
)
def test_invalid_workloads_are_refused(folder, text, want):
    with pytest.raises(PolicyError) as caught:
        load(folder(f"workloads: {text}"))
    [problem] = [str(problem) for problem in caught.value.problems]
    assert problem.partition(": ")[2].startswith(want), problem
