#!/usr/bin/env python3
"""Compares the memory that `tutti train --dry-run` plans for a rank with the memory that it takes.

    python3 bench/memory.py --data TEXT
    python3 bench/memory.py --data TEXT --model "--layers 4 --width 256" -- "--recompute full" "--ranks 2 --zero 3"

Trains the model for two steps with each set of options. Prints for each set what was planned, what
the run reported at its end, and the PSS of rank 0's process minus that of a run of a tiny model with
the same number of ranks, all in MB.
"""

import argparse
import json
import subprocess
import tempfile

WAYS = ["", "--micro-batch 2", "--recompute full", "--recompute selective", "--precision bfloat16",
        "--optimizer adafactor", "--optimizer adamw8bit", "--ranks 2 --zero 1", "--ranks 2 --zero 2",
        "--ranks 2 --zero 3", "--ranks 2 --tp 2", "--ranks 2 --pp 2 --micro-batch 2",
        "--ranks 2 --cp 2"]
TINY = "--layers 1 --width 8 --heads 1 --context 8 --batch 2"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", help="path of the program (default: %(default)s)")
    parser.add_argument("--data", required=True, help="data to train on, as of tutti train")
    parser.add_argument("--model", default="--layers 6 --width 384 --heads 6 --context 256 --batch 8",
                        help="options of tutti train for all runs (default: %(default)s)")
    parser.add_argument("ways", nargs="*", default=WAYS, help="more options of tutti train, one string for each run, after --")
    return parser.parse_args()


def last_line(options, *more):
    """Runs tutti train and returns the last line of its JSON."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as lines:
        subprocess.run([options.tutti, "train", "--data", options.data, "--model", "gpt2",
                        "--threads", "1", "--steps",
                        "2", "--json", lines.name, *more], check=True, stdout=subprocess.DEVNULL)
        with open(lines.name) as file:
            return json.loads(file.read().splitlines()[-1])


def main():
    options = parse()
    tiny = {}
    print(f"{'options':34} {'planned':>9} {'reported':>9} {'PSS':>9} {'PSS / planned':>14}")
    for way in options.ways:
        words = way.split()
        ranks = words[words.index("--ranks") + 1] if "--ranks" in words else "1"
        if ranks not in tiny:
            tiny[ranks] = last_line(options, *TINY.split(), "--ranks", ranks)["process_bytes"]
        planned = last_line(options, *options.model.split(), *words, "--dry-run")["memory_total"]
        run = last_line(options, *options.model.split(), *words)
        taken = run["process_bytes"] - tiny[ranks]
        print(f"{way or '-':34} {planned / 1e6:9.1f} {sum(run['memory'].values()) / 1e6:9.1f} "
              f"{taken / 1e6:9.1f} {taken / planned:14.3f}", flush=True)


if __name__ == "__main__":
    main()
