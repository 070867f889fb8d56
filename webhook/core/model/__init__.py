"""What decisions are made of: amounts, names, pods, nodes, policy, reasons. Values only; imports no other room."""
