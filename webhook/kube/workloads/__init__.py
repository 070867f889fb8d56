"""Objects that make pods, as the pods that they would make. Pure: documents in, pod sets out."""
