"""The API server, the followers and the objects of the benchmark of watches."""
