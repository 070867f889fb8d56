"""One connection to the API server: credentials, errors, bytes on the wire."""
