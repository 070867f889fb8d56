"""The HTTPS server: handlers, probes, settings and the composition root."""
