"""Usage and limits: what each team holds, its hard limits, the charges in flight, the text of a refusal."""
