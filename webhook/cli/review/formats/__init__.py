"""Output formats of a review: for people, GitHub, SARIF and JUnit. Pure: from a review to text."""
