"""Translation between Kubernetes objects and the core; the only place that knows field names."""
