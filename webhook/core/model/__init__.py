"""What decisions are made of: amounts, pods and their life, nodes, policy, reasons. Imports no other room."""
