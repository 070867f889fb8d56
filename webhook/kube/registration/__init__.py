"""What API servers must know of Fairgate: webhook configurations, guards (YAML in templates/), definitions, roles."""
