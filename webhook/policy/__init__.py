"""Policy files: YAML in, core.Policy or a list of problems out."""
