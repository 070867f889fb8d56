"""The HTTP shell that the webhook, the evictor and the page share: sockets, and bounds on what clients hold."""
