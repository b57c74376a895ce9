"""Starts the ranks of a job: python -m tutti.run -n 4 script.py [arguments]

Options before the script are options of `tutti run` (--help lists them). The script, or `-m module`,
runs under this interpreter; after -- any program may follow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TUTTI = Path(__file__).parent / "bin" / "tutti"


def command_line(arguments: list[str]) -> list[str]:
    """Returns the command line for this module's arguments."""
    for i, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument.endswith(".py") or argument == "-m":
            python = ["--", sys.executable]
            return [str(TUTTI), "run", *arguments[:i], *python, *arguments[i:]]
    return [str(TUTTI), "run", *arguments]


def main() -> None:
    """Executes `tutti run`."""
    os.execv(TUTTI, command_line(sys.argv[1:]))


def tutti() -> None:
    """Executes the `tutti` program, which `pip install` puts into the path."""
    os.execv(TUTTI, [str(TUTTI), *sys.argv[1:]])


if __name__ == "__main__":
    main()
