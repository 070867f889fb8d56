"""I/O with the Kubernetes API: credentials, list-watch, the feed into the `World`."""
