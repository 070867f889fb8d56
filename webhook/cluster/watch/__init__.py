"""List-watch of each kind, and the stores that it keeps equal to the API server."""
