"""`python -m opensafeintent`."""

from opensafeintent.cli import main

main()
