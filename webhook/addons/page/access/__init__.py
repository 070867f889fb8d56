"""Who may see what: sessions, tokens, hosts, and the rights that the API server grants."""
