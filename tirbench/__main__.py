"""`python -m tirbench`."""

from tirbench.cli import main

main()
