"""Fields, keys, quantities and bounds of Kubernetes objects; what every other room reads them with."""
