#!/usr/bin/env python3
"""Compares step times and memory that `tutti plan --cluster localhost` predicts with those of training.

    python3 bench/plan_on_this_host.py --data TEXT --ranks 4 --layouts 30

Trains the layouts of one plan (its first ones, then others from all of the ranking) in random order,
a few rounds, and prints the median error of step times and of memory, and how much longer the first
one takes than the fastest that was measured. A step's time is the median of all its rounds.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile

WARM_UP = 2  # steps per turn


def planned(options, folder):
    model = os.path.join(folder, "model.json")
    with open(model, "w") as file:
        json.dump({"model": {"kind": options.model, "layers": options.layers, "heads": options.heads,
                             "width": options.width, "context": options.context,
                             "vocabulary": 256}}, file)
    plan = os.path.join(folder, "plan.json")
    run(options.tutti, "plan", "--model", model, "--cluster", "localhost", "--ranks", options.ranks,
        "--global-batch", options.batch, "--seq", options.context, "--json", plan)
    with open(plan) as file:
        layouts = json.load(file)["layouts"]
    if len(layouts) <= options.layouts:
        return layouts
    best = min(options.layouts // 3, len(layouts))
    others = random.Random(1).sample(layouts[best:], options.layouts - best)
    return layouts[:best] + others


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def measured(options, layout, folder):
    log = os.path.join(folder, "train.jsonl")
    if os.path.exists(log):
        os.remove(log)
    words = layout["command"].split()[1:]
    run(options.tutti, *words, "--data", options.data, "--steps", WARM_UP + options.steps,
        "--validation-samples", options.batch * options.ranks, "--json", log)
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    tokens = options.batch * options.context
    steps = [tokens / line["tokens_per_s_step"] for line in lines if "step" in line][WARM_UP:]
    return steps, sum(lines[-1]["memory"].values())


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("ranks", 4), ("layers", 4), ("heads", 4), ("width", 256),
                          ("context", 256), ("batch", 16), ("steps", 4), ("rounds", 2),
                          ("layouts", 30)]:
        parser.add_argument("--" + name, type=int, default=default, help=f"({default})")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--data", required=True, metavar="TEXT")
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", metavar="PROGRAM")
    return parser.parse_args()


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        layouts = planned(options, folder)
        steps = [[] for _ in layouts]
        memory = [0] * len(layouts)
        for _ in range(options.rounds):
            order = list(range(len(layouts)))
            random.shuffle(order)
            for i in order:
                its, memory[i] = measured(options, layouts[i], folder)
                steps[i] += its
    medians = [statistics.median(its) for its in steps]
    errors, memory_errors, inside = [], [], 0
    for layout, seconds, bytes_ in zip(layouts, medians, memory):
        error = layout["step_s"] / seconds - 1
        memory_error = layout["memory_bytes"] / bytes_ - 1
        errors.append(abs(error))
        memory_errors.append(abs(memory_error))
        inside += layout["step_s_low"] <= seconds <= layout["step_s_high"]
        print(f"{layout['step_s']:8.4f} s predicted {seconds:8.4f} measured {100 * error:+6.1f}%"
              f"   memory {100 * memory_error:+6.1f}%   {layout['layout']}")
    print(f"step time: median error {100 * statistics.median(errors):.1f}%, largest "
          f"{100 * max(errors):.1f}%; {inside} of {len(layouts)} in their 90% intervals")
    print(f"memory: median error {100 * statistics.median(memory_errors):.2f}%, largest "
          f"{100 * max(memory_errors):.2f}%")
    print(f"the first one takes {100 * (medians[0] / min(medians) - 1):.1f}% longer than the fastest")


if __name__ == "__main__":
    main()
