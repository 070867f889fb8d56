"""Policy files: from YAML to core.Policy, or to a list of problems."""
