#!/usr/bin/env python3
"""Runs a bazel command and prints its progress and the estimated remaining time every ten seconds.

usage: tools/bazel/progress.py WORD BAZEL-COMMAND...

    building: 120 of 300, about 3 min left

Bazel's own progress lines and notes are dropped; everything else (warnings, errors, failed tests) is printed as it
comes. The last line is how long it took. Exits with bazel's exit status.
"""
import re
import subprocess
import sys
import time

BETWEEN_LINES = 10  # seconds
# "[120 / 300] 7 / 384 tests; Compiling ...": for tests, the number of finished ones is more informative.
PROGRESS = re.compile(r"^\[([\d,]+) / ([\d,]+)\](?: ([\d,]+) / ([\d,]+) tests)?")
NOISE = re.compile(r"^(Loading|Analyzing|INFO|DEBUG|Starting local Bazel|    currently loading|$)")


def words(seconds):
    """Formats a duration: 59 s, 3 min, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Estimates the rate at which actions finish."""

    def __init__(self, word):
        self.word = word
        self.start = self.said = time.monotonic()
        self.totals = []  # as Bazel reported them

    def tell(self, done, total):
        now = time.monotonic()
        if now - self.said < BETWEEN_LINES:
            return
        self.said = now
        left = (now - self.start) * (total - done) / max(done, 1)
        # While Bazel still discovers actions, the total is unknown.
        self.totals = [*self.totals[-2:], total]
        is_known = len(self.totals) == 3 and total <= 1.02 * self.totals[0]
        estimate = f", about {words(left)} left" if is_known else ""
        print(f"{self.word}: {done} of {total}{estimate}", flush=True)


def main():
    word, command = sys.argv[1], sys.argv[2:]
    command[2:2] = ["--color=no", "--curses=no", "--show_progress_rate_limit=2"]
    progress = Progress(word)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as bazel:
        for line in bazel.stdout:
            found = PROGRESS.match(line)
            if found:
                actions, tests = found.groups()[:2], found.groups()[2:]
                done, total = (int(number.replace(",", "")) for number in (tests if tests[0] else actions))
                progress.tell(done, total)
            elif not NOISE.match(line):
                print(line, end="", flush=True)
    print(f"{word}: {'done' if bazel.returncode == 0 else 'failed'} after {words(time.monotonic() - progress.start)}",
          flush=True)
    return bazel.returncode


if __name__ == "__main__":
    sys.exit(main())
