"""HTTPS in and out: sockets, bounds on requests, routes, probes. Knows no decision."""
