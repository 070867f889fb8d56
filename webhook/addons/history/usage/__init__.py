"""`fairgate usage`: GPU-hours by team, user, model, tier or department."""
