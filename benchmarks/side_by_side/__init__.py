"""Fairgate beside stock Kubernetes, Kueue and Volcano: the same load, client and control plane for each."""
