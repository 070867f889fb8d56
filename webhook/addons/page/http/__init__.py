"""HTTP: routes, templates, static files and the stream of events."""
