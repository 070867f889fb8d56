"""The ledger on the API: one TeamLedger object for each team, shared by all replicas."""
