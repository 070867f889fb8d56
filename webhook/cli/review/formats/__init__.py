"""A review in the words of those who read it: people, GitHub, SARIF and JUnit readers. Pure: a review in, text out."""
