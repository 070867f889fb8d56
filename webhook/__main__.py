"""`python -m webhook` is the `fairgate` command."""

from webhook.cli.main import main

main()
