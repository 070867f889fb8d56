"""The evictor: takes borrowed GPUs back for guaranteed pods that wait."""
