"""What one replica does for all: tiers, bypasses, registration, accounting, retries."""
