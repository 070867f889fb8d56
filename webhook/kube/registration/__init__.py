"""What the API server must know of Fairgate: webhook configurations, admission policies, definitions, roles."""
