"""From a pod as Kubernetes writes it to the pod that decisions and reclaim read, and patches of pods."""
