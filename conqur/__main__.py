"""`python -m conqur`."""

from conqur.cli import main

main()
