"""``python -m psco`` is the program ``psco``."""

from psco.cli import main

main()
