#!/usr/bin/env python3
"""Trains one model with each synchronization method while one rank is slow.

    python3 bench/stragglers.py --data TEXT --slow 3:x4 --out losses.svg

Each rank also sleeps during a step, so that the ranks can share processors without slowing each other
down (see --sleep). Prints for each method how long the steps took, which share of it the fastest and
the slowest worker waited, what they sent, the final loss, and when the smoothed training loss reached
the final one of `allreduce`. `tutti plot --over time` draws all losses in one graph.
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
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", help="path of the program (default: %(default)s)")
    parser.add_argument("--data", required=True, help="data to train on, as of tutti train")
    parser.add_argument("--ways", nargs="+", default=WAYS, help="values of --sync to compare (default: all methods)")
    parser.add_argument("--ranks", type=int, default=4, help="number of ranks that compute gradients (default: 4)")
    parser.add_argument("--slow", default="3:x4", help="slow rank, and the factor by which its steps take longer (default: 3:x4)")
    parser.add_argument("--sleep", type=float, default=3,
                        help="how many times as long as computing every rank takes")
    parser.add_argument("--steps", type=int, default=400, help="steps per run (default: 400)")
    parser.add_argument("--lr", default="2e-3", help="learning rate of all methods but async (default: 2e-3)")
    parser.add_argument("--async-lr", default="5e-4",
                        help="learning rate of async and async:N, which apply each worker's gradients alone (default: 5e-4)")
    parser.add_argument("--out", help="write a graph of the losses to this SVG file")
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
