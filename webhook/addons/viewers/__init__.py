"""The room for viewers: the cluster without the names of pods, namespaces and users, published by the leader."""
