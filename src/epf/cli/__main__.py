"""`python -m epf.cli` is the command `epf`."""

from epf.cli import main

main()
