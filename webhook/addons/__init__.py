"""What enforcement does without: each folder may be taken away, and the rest serves, reclaims and answers as before."""
