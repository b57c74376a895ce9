#!/usr/bin/python3
"""tools/gpu_check on emulated GPUs: every section has results, none fails; what fails is reported as failed."""

import json
import os
import subprocess
import sys
import tempfile

GPU_CHECK = os.path.abspath(sys.argv[1])


def run(folder, *options, **environment):
    """The exit code, the output and the report."""
    done = subprocess.run(
        [GPU_CHECK, "--report", folder, "--largest", "64K", "--patience", "20", "--limit", "3000", *options],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    path = os.path.join(folder, "report.json")
    report = json.load(open(path, encoding="utf-8")) if os.path.exists(path) else None
    return done.returncode, done.stdout, report


def outcomes(report, section):
    return [result["outcome"] for result in report["results"] if result["section"].startswith(section)]


def require(holds, why):
    if not holds:
        sys.exit(f"not so: {why}")


def all_sections(folder, gpus):
    cases = "Abort|Between|Graph.*auto|Moved?|Windows.*Copy|TellsWho"  # the rest are tests of their own
    code, output, report = run(folder, "--programs", ".", "--cases", cases, FAKE_CUDA_DEVICES=str(gpus))
    print(output)
    require(code == 0, f"exit code 0 with {gpus} GPUs")
    require(report["counts"]["failed"] == 0, "nothing failed")
    require(len(outcomes(report, "Device tests")) > 8, "the cases of the device tests have results")
    require(outcomes(report, "Collectives").count("passed") > 25, "collectives between processes were right")
    require(f"all_reduce, {gpus} ranks" in report["values"] or gpus == 1, "there is a table of all_reduce")
    rows = report["values"]["all_reduce, 1 rank"]["rows"]
    require([row[0] for row in rows] == ["8 B", "256 B", "8 KiB"], "the table has the sizes up to the largest")
    require(os.path.exists(os.path.join(folder, "report.md")), "the report can be read")


def failures(folder):
    code, output, report = run(folder, "--programs", ".", "--only", "machine", LD_LIBRARY_PATH="", FAKE_CUDA_DEVICES="0")
    require(code == 1 and "is the driver installed" in output, "a machine without a GPU is a failure")
    broken = os.path.join(folder, "broken")
    for program in ("tools/tutti", "tests/collectives/gpu/executor_test"):
        path = os.path.join(broken, program)
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho it is broken\nexit 3\n")
        os.chmod(path, 0o755)
    code, output, report = run(folder, "--programs", broken, "--only", "processes", FAKE_CUDA_DEVICES="2")
    require(code == 1 and report["counts"]["passed"] == 0, "programs that fail are failures")
    require("exit code 3" in output and "it is broken" in output, "their exit code and output are shown")
    code, output, report = run(folder, "--programs", ".", "--only", "bench", "--limit", "1", FAKE_CUDA_DEVICES="2")
    require(code == 0 and "no time left" in output, "what no time is left for is skipped")


def main():
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath("tests/support/fake_cuda")
    for gpus in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            all_sections(folder, gpus)
    with tempfile.TemporaryDirectory() as folder:
        failures(folder)
    print("gpu_check_test: all right")


if __name__ == "__main__":
    main()
