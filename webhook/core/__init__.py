"""The pure core: every decision, and nothing that touches the world outside."""
