"""From nodes, namespaces, priority classes and quotas to what decisions read."""
