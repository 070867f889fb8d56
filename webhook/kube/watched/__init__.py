"""The kinds of objects that are watched, each as one row: its API, its fields, and how a world takes it in."""
