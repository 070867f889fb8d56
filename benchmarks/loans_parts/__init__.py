"""The load, the knowledge and the rule that loans.py compares."""
