"""From a pod as Kubernetes writes it to the pod that decisions read."""
