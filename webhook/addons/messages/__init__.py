"""Messages to people, as alerts by HTTP: what is worth one, and how often it is sent. Knows no decision."""
