"""Messages to people by HTTP: what is worth one, how often it is sent, in which format. Knows no decision."""
