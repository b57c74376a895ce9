#!/usr/bin/env python3
"""Tokens/s of `tutti train` and of PyTorch on one rank with as many threads, in turn.

    python3 bench/torch_training.py --threads 2 --dtype bfloat16

The same GPT-2 (nanoGPT's small one, unless told otherwise), micro-batch, AdamW and precision; PyTorch
does what is fastest there (peers/torch_gpt.py). Each has its turn in every round; what is printed is
the median over all steps but each turn's first ones, the best step, and the ratio of the medians.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WARM_UP = 3  # steps of each turn


def tutti_speeds(options, data, folder):
    log = os.path.join(folder, "tutti.jsonl")
    command = [options.tutti, "train", "--data", data, "--model", "gpt2", "--ranks", "1",
               "--threads", options.threads, "--layers", options.layers, "--heads", options.heads,
               "--width", options.width, "--context", options.context, "--vocabulary",
               options.vocab, "--micro-batch", options.batch, "--batch", options.batch, "--steps",
               WARM_UP + options.steps, "--validation-samples", options.batch, "--precision",
               {"float32": "f32", "bfloat16": "bf16"}[options.dtype], "--json", log]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    return [line["tokens_per_s_step"] for line in lines if "step" in line][WARM_UP:]


def torch_speeds(options, data):
    command = [options.python, os.path.join(HERE, "peers", "torch_gpt.py"), "--threads",
               options.threads, "--layers", options.layers, "--heads", options.heads, "--width",
               options.width, "--context", options.context, "--vocab", options.vocab, "--batch",
               options.batch, "--steps", options.steps, "--warmup", WARM_UP, "--dtype",
               options.dtype, "--bf16-mode", options.bf16_mode, "--data", data]
    result = subprocess.run([str(word) for word in command], check=True, capture_output=True)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [line["tokens_per_s"] for line in lines if "step" in line]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("threads", 2), ("layers", 6), ("heads", 6), ("width", 384),
                          ("context", 256), ("vocab", 256), ("batch", 8), ("steps", 6),
                          ("rounds", 3)]:
        parser.add_argument("--" + name, type=int, default=default, help=f"({default})")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--bf16-mode", choices=["autocast", "pure"], default="autocast",
                        help="of PyTorch; autocast is the faster one")
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", metavar="PROGRAM")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    return parser.parse_args()


def main():
    options = parse()
    speeds = {"tutti": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "bytes")
        with open(data, "wb") as file:
            file.write(bytes(random.choices(range(32, 127), k=1 << 20)))  # it must be text
        for _ in range(options.rounds):
            speeds["tutti"] += tutti_speeds(options, data, folder)
            speeds["torch"] += torch_speeds(options, data)
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    for name, found in speeds.items():
        print(f"{name:6} {medians[name]:8.0f} tokens/s (median of {len(found)} steps, best "
              f"{max(found):.0f})")
    print(f"ratio  {medians['tutti'] / medians['torch']:8.2f} ({options.dtype}, "
          f"{options.threads} threads)")


if __name__ == "__main__":
    main()
