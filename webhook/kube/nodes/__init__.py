"""From nodes, quotas, budgets and volumes to what decisions read; taints and notes of held nodes."""
