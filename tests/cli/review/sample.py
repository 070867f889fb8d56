"""A small pull request: a job over the limit, a pod that is admitted, an invalid document, an object without pods."""

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 8, limit: 8}}
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 8, limit: 20}}
"""
TRAIN = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: "resnet|50", namespace: vision}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 6
      template:
        spec:
          containers:
            - name: pytorch
              resources:
                limits:
                  nvidia.com/gpu: 4
"""
OTHERS = """\
apiVersion: v1
kind: Pod
metadata: {name: notebook, namespace: nlp}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: notebook, namespace: nlp}
---
broken: [
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: nlp}
spec: {template: {spec: {containers: [{name: main}]}}}
"""


def write(folder):
    """Write the policy and the manifests below a folder."""
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "k8s").mkdir()
    (folder / "k8s" / "50%,train.yaml").write_text(TRAIN)
    (folder / "k8s" / "others.yml").write_text(OTHERS)
