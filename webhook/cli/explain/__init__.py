"""`fairgate explain`: one decision, step by step."""
