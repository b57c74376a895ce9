#!/usr/bin/env python3
"""Trains one model in memory and offloaded, and compares memory and time with the plan.

    python3 bench/offload.py --data TEXT --dir DIR -- --layers 12 --width 512 --batch 8 --zero 3
    python3 bench/offload.py --data TEXT --dir DIR --limit 300M ...

Runs the kinds of offloading (--kinds) in alternation, each --rounds times. Prints for each kind the
memory of a rank in MB that `--dry-run` plans and that was measured, and the median seconds and
processor seconds of a step. The measured memory is the largest PSS of a rank's process, minus that of
a run of a tiny model. With --limit, each run gets a control group (version 1 or 2) with that much
memory, page cache included, and a run that does not fit is reported as killed.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time

KINDS = ["", "optimizer", "optimizer,parameters", "optimizer,parameters,activations"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", default="bazel-bin/tools/tutti", help="path of the program (default: %(default)s)")
    parser.add_argument("--data", required=True, help="data to train on, as of tutti train")
    parser.add_argument("--dir", required=True, help="directory for the offloaded state (--offload-dir)")
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="values of --offload to compare; '' trains in memory")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind (default: 2)")
    parser.add_argument("--steps", type=int, default=5, help="steps per run (default: 5)")
    parser.add_argument("--limit", help="memory limit of each run's control group, such as 300M")
    parser.add_argument("--window", type=int, default=64, help="value of --offload-window (default: 64)")
    parser.add_argument("options", nargs="*", help="more options of tutti train, after --")
    return parser.parse_args()


class ControlGroup:
    """Limits the memory of the commands that wrap() returns, by a control group."""

    def __init__(self, limit):
        self.folder = None
        if limit is None:
            return
        second = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        parent = "/sys/fs/cgroup" if second else "/sys/fs/cgroup/memory"
        self.folder = f"{parent}/tutti-offload-{os.getpid()}"
        os.mkdir(self.folder)
        with open(f"{self.folder}/{'memory.max' if second else 'memory.limit_in_bytes'}", "w") as file:
            file.write(limit)

    def wrap(self, command):
        if self.folder is None:
            return command
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def remove(self):
        if self.folder is not None:
            os.rmdir(self.folder)


def descendants(process):
    found = [process]
    for thread in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{thread}/children") as file:
            for child in file.read().split():
                found += descendants(int(child))
    return found


def set_size(process):
    with open(f"/proc/{process}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Watch(threading.Thread):
    """Samples the PSS of a run's processes, and keeps the largest of any of them in `largest`, in bytes."""

    def __init__(self, process):
        super().__init__()
        self.process = process
        self.largest = 0

    def run(self):
        while self.process.poll() is None:
            try:
                for each in descendants(self.process.pid):
                    self.largest = max(self.largest, set_size(each))
            except OSError:
                pass  # it has ended meanwhile
            time.sleep(0.02)


def command_of(options, kinds, steps, more):
    command = [options.tutti, "train", "--data", options.data, "--model", "gpt2", "--threads", "1",
               "--steps", str(steps), "--validation-samples", "8", *more]
    if kinds:
        command += ["--offload", kinds, "--offload-dir", options.dir,
                    "--offload-window", str(options.window)]
    return command


def train(options, group, kinds, more):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as lines:
        command = command_of(options, kinds, options.steps, more) + ["--json", lines.name]
        process = subprocess.Popen(group.wrap(command), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        watch = Watch(process)
        watch.start()
        said = process.communicate()[1]
        watch.join()
        steps = [json.loads(line) for line in open(lines.name)]
        if process.returncode != 0:
            return None, said.strip().splitlines()[-1:]
        return watch.largest, [step for step in steps if "elapsed_s" in step and "loss" in step]


def planned(options, kinds):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as lines:
        subprocess.run(command_of(options, kinds, options.steps, options.options) +
                       ["--dry-run", "--json", lines.name], check=True, stdout=subprocess.DEVNULL)
        with open(lines.name) as file:
            last = json.loads(file.read().splitlines()[-1])
    return last["memory_total"], last["memory"][0]["files"]


def times(steps):
    ends = [0] + [step["elapsed_s"] for step in steps]
    seconds = [after - before for before, after in zip(ends, ends[1:])]
    return seconds[1:]  # the first one also allocates


def main():
    options = parse()
    tiny = ["--layers", "1", "--heads", "1", "--width", "8", "--context", "8", "--batch", "1"]
    base, _ = train(options, ControlGroup(None), "", tiny)
    plans = {kinds: planned(options, kinds) for kinds in options.kinds}
    seen = {kinds: [] for kinds in options.kinds}
    for _ in range(options.rounds):
        for kinds in options.kinds:
            group = ControlGroup(options.limit)
            seen[kinds].append(train(options, group, kinds, options.options))
            group.remove()
    print(f"a tiny model takes {base / 1e6:.1f} MB")
    print(f"{'offloaded':34} {'in files':>9} {'planned':>9} {'PSS':>9} {'s a step':>9} {'CPU s':>7} "
          f"{'loss':>8}")
    for kinds in options.kinds:
        memory, files = plans[kinds]
        runs = [run for run in seen[kinds] if run[0] is not None]
        print(f"{kinds or '-':34} {files / 1e6:9.1f} {memory / 1e6:9.1f} ", end="")
        if not runs:
            print("killed:", *seen[kinds][0][1])
            continue
        largest = max(run[0] for run in runs) - base
        seconds = statistics.median(time for run in runs for time in times(run[1]))
        processor = statistics.median(step.get("processor_s", 0) for run in runs
                                      for step in run[1][1:])
        print(f"{largest / 1e6:9.1f} {seconds:9.3f} {processor:7.3f} {runs[0][1][-1]['loss']:8.4f}")


if __name__ == "__main__":
    main()
