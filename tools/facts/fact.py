"""Facts that the program must reproduce, each with the commands that show it.

A Fact is a row of the page (tools/docs/pages/mission.md). Its figures are read from what commands print, and compared with
the number that the fact states. Commands run in an empty folder with three names: `text`, a text to train on; `tutti` and
the micro-benchmarks in the PATH; and $TREE, the repository.
"""
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Callable, Optional

TREE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = [TREE / "bazel-bin/tools", TREE / "bazel-bin/bench/micro"]
LIMIT_S = 600  # time limit of a command


class Output:
    """Holds what a command has printed, and the folder of the files that it has written."""

    def __init__(self, text, folder):
        self.text = text
        self.folder = folder

    def number(self, pattern):
        """Returns the first group of the pattern's first match, as a number."""
        found = re.search(pattern, self.text, re.M)
        if not found:
            raise ValueError(f"nothing matches {pattern}")
        return float(found[1])

    def numbers(self, pattern):
        return [float(found) for found in re.findall(pattern, self.text, re.M)]

    def json(self, name):
        return json.loads((self.folder / name).read_text())

    def lines(self, name):
        """Returns the objects of a file of JSON lines, as `tutti train --json` writes it: steps, then the summary."""
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def losses(self, name):
        return [line["loss"] for line in self.lines(name) if "loss" in line]


@dataclass(frozen=True)
class Figure:
    name: str
    command: str
    read: Callable[[Output], float]
    want: Optional[float] = None  # None: any number is right between `least` and `most`
    within: float = 0  # relative difference that is allowed
    least: float = -math.inf
    most: float = math.inf
    unit: str = ""
    # Also run by `tools/mission --small`. Figures that depend on the speed of the machine are not.
    small: bool = True
    needs: str = ""  # a program beside tutti; without it the figure is skipped

    def is_right(self, value):
        if self.want is not None:
            scale = abs(self.want) if self.want else 1
            return abs(value - self.want) <= self.within * scale + 1e-12 * scale
        return self.least <= value <= self.most

    def distance(self, value):
        if self.want is None:
            bounds = [f"at least {text(self.least)}" if self.least > -math.inf else "",
                      f"at most {text(self.most)}" if self.most < math.inf else ""]
            return ", ".join(bound for bound in bounds if bound) or "reported"
        if value == self.want:
            return "equal"
        if self.want == 0:
            return f"off by {text(value)}"
        return f"{100 * (value / self.want - 1):+.2g}%"


@dataclass(frozen=True)
class Fact:
    section: str
    what: str
    fact: str
    figures: list = field(default_factory=list)
    state: str = "shown"  # or "partly: WHY", "absent: WHY"


def text(value):
    return f"{value:.6g}"


def largest_difference(one, other):
    """Returns the largest relative difference of two lists of losses."""
    if len(one) != len(other) or not one:
        raise ValueError("runs of different lengths")
    return max(abs(a - b) / abs(b) for a, b in zip(one, other))


def same_losses(one, other):
    return lambda out: largest_difference(out.losses(one), out.losses(other))


class Runner:
    """Runs each command once, in a separate folder."""

    def __init__(self, text_file, programs=None):
        self.text_file = text_file
        path = os.pathsep.join(str(folder) for folder in (programs or PROGRAMS))
        self.environment = {**os.environ, "PATH": path + os.pathsep + os.environ["PATH"], "TREE": str(TREE)}
        self.folders = tempfile.TemporaryDirectory(prefix="tutti-facts-")
        self.known = {}

    def run(self, command):
        """Returns the command's output. Raises ValueError if the command fails."""
        if command not in self.known:
            self.known[command] = self.outcome(command)
        if isinstance(self.known[command], ValueError):
            raise self.known[command]
        return self.known[command]

    def outcome(self, command):
        folder = pathlib.Path(self.folders.name) / str(len(self.known))
        folder.mkdir()
        (folder / "text").symlink_to(self.text_file)
        try:
            done = subprocess.run(["bash", "-ec", command], cwd=folder, env=self.environment, text=True, timeout=LIMIT_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return ValueError(f"it took more than {LIMIT_S} s")
        if done.returncode != 0:
            return ValueError(f"exit code {done.returncode}: {done.stdout.strip()[-500:]}")
        return Output(done.stdout, folder)


def make_text(path):
    """Writes the Markdown files of the repository to one file, as a text to train on that every checkout has."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=TREE, check=True, capture_output=True, text=True).stdout.split()
    path.write_text("\n".join((TREE / name).read_text() for name in listed if not name.endswith("mission.md")))
