"""`python -m ottla` is the command `ottla`."""

from ottla.cli.main import main

main(prog_name="ottla")
