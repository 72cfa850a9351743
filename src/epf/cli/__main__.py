"""`python -m epf.cli` runs the `epf` command."""

from epf.cli import main

main()
