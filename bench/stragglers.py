#!/usr/bin/env python3
"""Trains one model with each synchronization method while one rank is slow.

    python3 bench/stragglers.py --data TEXT --slow 3:x4 --out losses.svg

Ranks sleep besides computing (--sleep times as long), so that fewer processors than ranks do not
make all of them slow. Prints for each way how long the steps took, how much of it the quickest and
the slowest worker waited, what they sent, the loss at the end, and when the smoothed training loss
had come to that of `allreduce` at the end. `tutti plot --over time` draws all losses in one picture.
"""

import argparse
import json
import os
import subprocess
import tempfile

WAYS = ["allreduce", "ps", "ps:1", "ssp:3", "async", "async:1", "local:16", "diloco:50", "gossip:exp",
        "adpsgd"]
SMOOTHED = 20  # steps


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti")
    parser.add_argument("--data", required=True)
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--ranks", type=int, default=4, help="that compute")
    parser.add_argument("--slow", default="3:x4", help="rank and how many times as long it takes")
    parser.add_argument("--sleep", type=float, default=3,
                        help="how many times as long as computing every rank takes")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", default="2e-3")
    parser.add_argument("--async-lr", default="5e-4",
                        help="of ways in which each worker's gradients are an update")
    parser.add_argument("--out", help="a picture (SVG)")
    parser.add_argument("options", nargs="*", help="more options of tutti train, after --")
    return parser.parse_args()


def servers_of(way):
    apart = way.split(":")[1:]
    return int(apart[-1]) if way.startswith(("ps:", "async:")) else 0


def train(options, way, path):
    slow, factor = options.slow.split(":x")
    slowness = {rank: options.sleep for rank in range(options.ranks)}
    slowness[int(slow)] *= float(factor)
    stragglers = ",".join(f"{rank}:x{times:g}" for rank, times in slowness.items())
    rate = options.async_lr if way.startswith("async") else options.lr
    subprocess.run([options.tutti, "train", "--data", options.data, "--model", "gpt2", "--layers", "2",
                    "--heads", "2", "--width", "64", "--context", "64", "--batch", "32",
                    "--micro-batch", "8", "--threads", "1", "--lr", rate, "--lr-schedule", "constant",
                    "--steps", str(options.steps), "--ranks", str(options.ranks + servers_of(way)),
                    "--straggler", stragglers, "--sync", way, "--json", path, *options.options],
                   check=True, stdout=subprocess.DEVNULL)
    with open(path) as file:
        return [json.loads(line) for line in file]


def smoothed(steps):
    curve = []
    for last in range(SMOOTHED, len(steps) + 1):
        part = steps[last - SMOOTHED:last]
        curve.append((part[-1]["elapsed_s"], sum(step["loss"] for step in part) / SMOOTHED))
    return curve


def main():
    options = parse()
    folder = tempfile.mkdtemp(prefix="stragglers.")
    paths = []
    target = None
    print(f"{'way':12} {'seconds':>8} {'steps/s':>8} {'quickest':>9} {'slowest':>9} {'MB':>8} "
          f"{'training':>9} {'validation':>10} {'to target':>10}", flush=True)
    for way in options.ways:
        paths.append(os.path.join(folder, way.replace(":", "-") + ".jsonl"))
        lines = train(options, way, paths[-1])
        steps, end = lines[:-1], lines[-1]
        seconds = steps[-1]["elapsed_s"]
        workers = end["workers"][:options.ranks]
        waits = [worker["waited_s"] / seconds for worker in workers]
        slow = int(options.slow.split(":")[0])
        quickest = max(wait for rank, wait in enumerate(waits) if rank != slow)
        curve = smoothed(steps)
        if target is None:
            target = curve[-1][1]
        reached = next((time for time, loss in curve if loss <= target), None)
        sent = sum(worker["bytes_sent"] for worker in end["workers"]) / 1e6
        print(f"{way:12} {seconds:8.1f} {len(steps) / seconds:8.2f} {quickest:9.0%} {waits[slow]:9.0%} "
              f"{sent:8.0f} {curve[-1][1]:9.4f} {end['validation_loss']:10.4f} "
              f"{'-' if reached is None else format(reached, '.1f'):>10}", flush=True)
    if options.out:
        subprocess.run([options.tutti, "plot", *paths, "--over", "time", "--out", options.out,
                        "--title", f"rank {options.slow}"], check=True)


if __name__ == "__main__":
    main()
