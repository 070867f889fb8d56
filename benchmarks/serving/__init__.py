"""The server, the client and the reviews of the benchmarks of requests."""
