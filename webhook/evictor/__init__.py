"""The evictor: gives teams their guaranteed shares back, and nobody anything else."""
