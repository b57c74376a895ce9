#!/usr/bin/env python3
"""Compares tokens/s of `tutti train` and of PyTorch on one rank with the same number of threads, in alternation.

    python3 bench/torch_training.py --threads 2 --dtype bfloat16
    python3 bench/torch_training.py --models 4x256 6x384 12x768 --contexts 256 1024

Trains GPT-2 models of the given layers x width with 64 values per head. Both programs use the same
micro-batch, optimizer (AdamW) and precision. PyTorch runs eager and compiled (peers/torch_gpt.py), and
the faster mode counts. Every round runs each program once. A speed is the median over all steps except
the first ones of each run, per second of wall-clock and of processor time. --avx2 disables AVX-512 in
both programs.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WARM_UP = 3  # steps per turn
AVX2 = {"TUTTI_CPU": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


class Model:
    def __init__(self, name, context, options):
        layers, width = (int(part) for part in name.split("x"))
        self.name, self.layers, self.width, self.context = name, layers, width, context
        self.heads = options.heads or max(1, width // 64)
        # The number of tokens per micro-batch does not depend on the context.
        self.batch = options.batch or max(1, 2048 // context)
        self.tokens = self.batch * context


class Steps:
    """Throughput of one program's steps: tokens per second of wall-clock time, and of processor time."""

    def __init__(self):
        self.clock, self.processor = [], []

    def add(self, tokens, lines, speed):
        for line in lines:
            self.clock.append(line[speed])
            self.processor.append(tokens / line["processor_s"])

    def medians(self):
        return statistics.median(self.clock), statistics.median(self.processor)


def run(command, options):
    environment = os.environ | (AVX2 if options.avx2 else {})
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True, env=environment).stdout


def tutti_steps(model, options, data, folder):
    log = os.path.join(folder, "tutti.jsonl")
    if os.path.exists(log):
        os.remove(log)
    out = run([options.tutti, "train", "--data", data, "--model", "gpt2", "--ranks", "1",
               "--threads", options.threads, "--layers", model.layers, "--heads", model.heads,
               "--width", model.width, "--context", model.context, "--vocabulary", options.vocab,
               "--micro-batch", model.batch, "--batch", model.batch, "--steps",
               WARM_UP + options.steps, "--validation-samples", model.batch, "--precision",
               {"float32": "f32", "bfloat16": "bf16"}[options.dtype], "--json", log], options)
    found = re.search(r"instructions +(\S+)", out)
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "step" in line][WARM_UP:], found.group(1) if found else "?"


def torch_steps(model, options, data, mode):
    command = [options.python, os.path.join(HERE, "peers", "torch_gpt.py"), "--threads",
               options.threads, "--layers", model.layers, "--heads", model.heads, "--width",
               model.width, "--context", model.context, "--vocab", options.vocab, "--batch",
               model.batch, "--steps", options.steps, "--warmup", WARM_UP, "--dtype",
               options.dtype, "--bf16-mode", options.bf16_mode, "--data", data]
    if mode == "compiled":
        command.append("--compile")
    lines = [json.loads(line) for line in run(command, options).splitlines()]
    return [line for line in lines if "step" in line]


def compare(model, options, data, folder):
    speeds = {"tutti": Steps(), **{mode: Steps() for mode in options.modes}}
    for _ in range(options.rounds):
        lines, instructions = tutti_steps(model, options, data, folder)
        speeds["tutti"].add(model.tokens, lines, "tokens_per_s_step")
        for mode in options.modes:
            speeds[mode].add(model.tokens, torch_steps(model, options, data, mode),
                             "tokens_per_s")
    best = max(options.modes, key=lambda mode: speeds[mode].medians()[1])
    (clock, processor), (torch_clock, torch_processor) = (speeds[name].medians()
                                                          for name in ("tutti", best))
    print(f"{model.name:8} {model.context:7} {clock:9.0f} {torch_clock:9.0f} {processor:9.0f} "
          f"{torch_processor:9.0f}  {processor / torch_processor:5.2f}  {best}; {instructions}",
          flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["6x384"], help="models as layers x width (default: 6x384)")
    parser.add_argument("--contexts", nargs="+", type=int, default=[256], help="lengths of the context in tokens (default: 256)")
    for name, default in [("threads", 2), ("vocab", 256), ("steps", 6), ("rounds", 3)]:
        parser.add_argument("--" + name, type=int, default=default, help=f"({default})")
    parser.add_argument("--batch", type=int, help="samples per step (default: as many as make 2048 tokens)")
    parser.add_argument("--heads", type=int, help="heads of attention (default: width / 64)")
    parser.add_argument("--modes", nargs="+", choices=["eager", "compiled"],
                        default=["eager", "compiled"], help="modes of PyTorch (default: both)")
    parser.add_argument("--avx2", action="store_true", help="disable AVX-512 in both programs")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--bf16-mode", choices=["autocast", "pure"], default="autocast",
                        help="how PyTorch computes in bfloat16 (default: autocast, which is faster)")
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", metavar="PROGRAM")
    parser.add_argument("--python", default=sys.executable, help="Python interpreter that has PyTorch (default: this one)")
    return parser.parse_args()


def main():
    options = parse()
    print(f"{options.dtype}, {options.threads} threads; tokens/s by the clock and a processor "
          "second\n"
          "model    context     tutti   PyTorch    tutti/p PyTorch/p  ratio  PyTorch's mode")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "bytes")
        with open(data, "wb") as file:
            file.write(bytes(random.choices(range(32, 127), k=1 << 20)))  # must be text
        for name in options.models:
            for context in options.contexts:
                compare(Model(name, context, options), options, data, folder)


if __name__ == "__main__":
    main()
