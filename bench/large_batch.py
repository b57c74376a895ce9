#!/usr/bin/env python3
"""Trains one model with each batch size and each learning-rate rule, always on the same number of samples.

    python3 bench/large_batch.py --data TEXT --out losses.svg
    python3 bench/large_batch.py --data MNIST --model perceptron --batches 8 64 512 4096

Prints a row for each batch size and a column for each rule: the validation loss after the same number
of samples, and below it the accuracy. The rules: the same rate (none); in proportion to the batch
(linear) or to its square root (sqrt), also the weight decay (sqrt+decay); LARS and LAMB, whose
layers' rates follow their norms. All warm up over a tenth of the steps. The last line is the critical
batch size that the noise scale of the smallest batch estimates: beyond it a larger batch trains less
for as many samples.
"""

import argparse
import json
import os
import subprocess
import tempfile

RULES = {
    "none": [],
    "linear": ["--rate-scaling", "linear"],
    "sqrt": ["--rate-scaling", "sqrt"],
    "sqrt+decay": ["--rate-scaling", "sqrt", "--decay-scaling", "sqrt"],
    "lars": ["--optimizer", "lars", "--rate-scaling", "sqrt", "--lr", "0.5"],
    "lamb": ["--optimizer", "lamb", "--rate-scaling", "sqrt"],
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", help="path of the program (default: %(default)s)")
    parser.add_argument("--data", required=True, help="data to train on, as of tutti train")
    parser.add_argument("--model", default="gpt2", help="gpt2 (default), or perceptron or resnet for images")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32, 128, 512, 2048],
                        help="batch sizes in samples (default: 8 32 128 512 2048)")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES), help="learning-rate rules (default: all)")
    parser.add_argument("--samples", type=int, default=16384, help="samples that each run trains on (default: 16384)")
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default: 2)")
    parser.add_argument("--lr", default="1e-3", help="learning rate of the smallest batch (default: 1e-3)")
    parser.add_argument("--out", help="write a graph of the losses by batch size and rule to this SVG file (needs gnuplot)")
    parser.add_argument("options", nargs="*", help="more options of tutti train, after --")
    return parser.parse_args()


def train(options, batch, rule, path):
    steps = max(1, options.samples // batch)
    small = ["--layers", "2", "--heads", "2", "--width", "64", "--context", "64"] if options.model == "gpt2" else []
    rate = [] if "--lr" in RULES[rule] or rule == "lamb" else ["--lr", options.lr]
    scaled = RULES[rule] + (["--base-batch", str(min(options.batches))] if "--rate-scaling" in RULES[rule] else [])
    # At least two micro-batches a step, of which the noise scale is estimated.
    micro_batch = min(64, max(1, batch // 2 // options.ranks))
    subprocess.run([options.tutti, "train", "--data", options.data, "--model", options.model, *small, "--batch", str(batch),
                    "--micro-batch", str(micro_batch), "--steps", str(steps), "--warmup", str(max(1, steps // 10)), "--ranks",
                    str(options.ranks), "--validation-samples", "8192", *rate, *scaled, "--json", path, *options.options],
                   check=True, stdout=subprocess.DEVNULL)
    with open(path) as file:
        return [json.loads(line) for line in file]


def noise_scale(lines):
    known = [line["noise_scale"] for line in lines if "noise_scale" in line]
    return known[-1] if known else None


def draw(losses, rules, critical, path):
    """Draws a line for each rule, and a vertical one at the critical batch size."""
    rows = "\n".join(" ".join(map(str, (batch, *ends))) for batch, ends in losses.items())
    lines = ", ".join(f'$losses using 1:{2 + i} with linespoints title "{rule}"' for i, rule in enumerate(rules))
    mark = "" if critical is None else f'set arrow from {critical}, graph 0 to {critical}, graph 1 nohead dashtype 2\n'
    program = (f'$losses << E\n{rows}\nE\nset terminal svg\nset output "{path}"\nset logscale x 2\nset key left\n'
               f'set xlabel "batch, samples (dashed: critical by the noise scale)"\nset ylabel "validation loss"\n{mark}plot {lines}\n')
    subprocess.run(["gnuplot"], input=program, text=True, check=True)


def main():
    options = parse()
    folder = tempfile.mkdtemp(prefix="large_batch.")
    critical = None
    losses = {}
    print(f"{'batch':>6} {'steps':>6}" + "".join(f"{rule:>12}" for rule in options.rules), flush=True)
    for batch in options.batches:
        ends = []
        for rule in options.rules:
            path = os.path.join(folder, f"{batch}-{rule}.jsonl")
            lines = train(options, batch, rule, path)
            ends.append(lines[-1])
            if batch == min(options.batches) and critical is None:
                critical = noise_scale(lines)
        losses[batch] = [end["validation_loss"] for end in ends]
        steps = max(1, options.samples // batch)
        print(f"{batch:6} {steps:6}" + "".join(f"{end['validation_loss']:12.4f}" for end in ends))
        print(f"{'':13}" + "".join(f"{end['validation_accuracy']:12.2%}" for end in ends), flush=True)
    print("critical batch size by the noise scale: " + ("unknown" if critical is None else f"{critical:.0f} samples"))
    if options.out:
        draw(losses, options.rules, critical, options.out)


if __name__ == "__main__":
    main()
