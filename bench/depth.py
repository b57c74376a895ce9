#!/usr/bin/env python3
"""Finds the deepest model that fits in a memory limit, with and without recomputation of activations.

    python3 bench/depth.py --data TEXT --limit 300 --json depth.json --out memory.svg

Trains one step at several depths, measures the process's peak resident memory, and finds the largest depth below
the limit. Then measures how much processor time recomputation adds in a wider model, where products dominate.
--out draws memory by depth.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

WAYS = ("none", "full")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", help="path of the program (default: %(default)s)")
    parser.add_argument("--data", required=True, help="data to train on, as of tutti train")
    parser.add_argument("--limit", type=float, default=300, help="limit of resident memory in MB (default: 300)")
    parser.add_argument("--batch", type=int, default=64, help="samples per step (default: 64)")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--out", help="write a graph of memory by depth to this SVG file (needs gnuplot)")
    parser.add_argument("options", nargs="*", help="more options of tutti train, after --")
    return parser.parse_args()


class Model:
    """Trains GPT-2 models with small blocks, whose memory is nearly all activations."""

    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="depth.")
        self.curve = {way: {} for way in WAYS}  # MB by depth

    def train(self, depth, way, steps=1, width=16):
        """Returns (peak resident memory in MB, processor seconds of the fastest step)."""
        path = os.path.join(self.folder, "run.jsonl")
        batch = str(self.options.batch if width == 16 else 16)
        words = [self.options.tutti, "train", "--data", self.options.data, "--model", "gpt2", "--width", str(width), "--heads", str(width // 16),
                 "--context", "128", "--layers", str(depth), "--batch", batch, "--micro-batch", batch, "--steps", str(steps), "--warmup", "1", "--ranks", "1", "--threads", "1",
                 "--validation-samples", "128", "--recompute", way, "--json", path, *self.options.options]
        # A separate process waits for this run alone, so that RUSAGE_CHILDREN is the peak of this run.
        done = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys\n"
                               "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
                               "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
                               "sys.exit(code)", *words], check=True, stdout=subprocess.PIPE, text=True)
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        peak = int(re.search(r"peak (\d+)", done.stdout)[1]) * 1024 / 1e6
        if width == 16:
            self.curve[way][depth] = peak
        return peak, min(line["processor_s"] for line in lines if "loss" in line)


def deepest(model, way, limit):
    """Returns the largest depth below the limit, and its peak memory in MB. Extrapolates from two depths, then corrects."""
    first, second = 4, 12
    low, high = model.train(first, way)[0], model.train(second, way)[0]
    if low > limit:
        sys.exit(f"depth.py: {first} blocks take {low:.0f} MB already")
    depth = max(first, int(first + (limit - low) / ((high - low) / (second - first))))
    peak = model.train(depth, way)[0]
    slope = (peak - low) / (depth - first) if depth > first else (high - low) / (second - first)
    while peak > limit:
        depth -= max(1, int((peak - limit) / slope))
        peak = model.train(depth, way)[0]
    return depth, peak


def draw(curve, path):
    data = "\n".join("\n".join([f"${way} << E", *(f"{depth} {peak}" for depth, peak in sorted(curve[way].items())), "E"]) for way in WAYS)
    lines = ", ".join(f'${way} with linespoints title "recompute {way}"' for way in WAYS)
    program = f'{data}\nset terminal svg\nset output "{path}"\nset xlabel "blocks"\nset ylabel "MB"\nset key left\nplot {lines}\n'
    subprocess.run(["gnuplot"], input=program, text=True, check=True)


def main():
    options = parse()
    model = Model(options)
    found = {}
    for way in WAYS:
        depth, peak = deepest(model, way, options.limit)
        found[way] = depth
        print(f"recompute {way:5} {depth:6} blocks in {peak:.0f} MB of {options.limit:.0f}", flush=True)
    # Time is measured where products dominate, as in real models.
    times = [{way: model.train(8, way, steps=4, width=128)[1] for way in WAYS} for _ in range(3)]
    seconds = {way: min(time[way] for time in times) for way in WAYS}
    result = {"limit_MB": options.limit, "depth": found, "deeper": found["full"] / found["none"],
              "more_compute": seconds["full"] / seconds["none"] - 1, "MB_by_depth": model.curve}
    print(f"{result['deeper']:.1f} times as deep; {100 * result['more_compute']:.0f}% more processor time, 8 blocks of width 128")
    if options.out:
        draw(model.curve, options.out)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
