"""The history: who held, waited for and was refused GPUs, kept in a file and read back."""
