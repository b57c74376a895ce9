"""torch's own tests of its backends, which its wheel ships (distributed_test.py), over Tutti and over Gloo, as a table.

    PYTHONPATH=bazel-bin/bindings/python/package .cache/torch/bin/python3 tests/bindings/torch/suite.py [--ranks 4] [TEST...]

Most of them run for the names of torch's own backends only: so Tutti stands in Gloo's place, under its name. Exits with 1
where a test is worse over Tutti than over Gloo, and no reason is written below. Needs expecttest and hypothesis.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

# Tests with permitted deviations, and the reasons.
REASONS = {
    "test_ddp_logging_data_cpu": "torch notes the backend of every plugin as 'custom' in DDP's logging data.",
    "test_sparse_all_reduce_sum": "Sparse tensors are refused, with the remedy.",
}


def as_gloo():
    """Tutti in the place of Gloo, and its events under Gloo's name."""
    import torch.distributed as dist
    import tutti.torch  # noqa: F401
    from torch.testing._internal.distributed import distributed_test

    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["TUTTI"]
    original = distributed_test.get_profiling_event

    def renamed(name, *args, **kwargs):
        events = original(name.replace("gloo:", "tutti:"), *args, **kwargs)
        for event in events:
            event.name = event.name.replace("tutti:", "gloo:")
        return events

    distributed_test.get_profiling_event = renamed


def run_one(backend, name):
    """Runs one test in this process and its ranks; prints what became of it."""
    from torch.testing._internal.distributed import distributed_test

    if backend == "tutti":
        as_gloo()

    class Test(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    result = unittest.TestResult()
    Test(name).run(result)
    what = "skipped" if result.skipped else "passed" if result.wasSuccessful() else "failed"
    text = "".join(text for _, text in result.failures + result.errors)
    print("\n" + json.dumps({"what": what, "text": text}))


def outcome(backend, name, ranks):
    with tempfile.TemporaryDirectory() as folder:
        for sub in ("barrier", "test_dir", "init_dir"):
            os.mkdir(f"{folder}/{sub}")
        environment = {
            **os.environ, "BACKEND": "gloo", "WORLD_SIZE": str(ranks), "TEMP_DIR": folder, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500", "INIT_METHOD": f"file://{folder}/init_dir/shared", "OMP_NUM_THREADS": "1",
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "100",
        }
        try:
            done = subprocess.run([sys.executable, __file__, "--one", backend, name], env=environment, capture_output=True,
                                  text=True, timeout=150)
        except subprocess.TimeoutExpired:
            return "failed", "it did not end within 150 s"
    try:
        last = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return "failed", done.stderr[-3000:]
    return last["what"], last["text"] + done.stderr[-3000:]


def names(ranks):
    """Of the tests that Gloo's name alone does not skip."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR="/tmp", INIT_METHOD="file:///tmp/none")
    from torch.testing._internal.distributed import distributed_test

    tests = distributed_test.DistributedTest._DistTestBase
    return [name for name in unittest.TestLoader().getTestCaseNames(tests)
            if not getattr(getattr(tests, name), "__unittest_skip__", False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--texts", help="a file for what the failed ones said")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    counts, worse = {}, []
    texts = open(options.texts, "w") if options.texts else None
    for name in options.tests or names(options.ranks):
        found = {}
        for backend in ("tutti", "gloo"):
            if found.get("tutti") == "skipped":  # by a condition that both share
                found[backend] = "skipped"
            else:
                found[backend], text = outcome(backend, name, options.ranks)
                if found[backend] == "failed" and texts:
                    print(f"==== {name} over {backend}\n{text}", file=texts, flush=True)
        key = (found["tutti"], found["gloo"])
        counts[key] = counts.get(key, 0) + 1
        if key != ("skipped", "skipped") and key != ("passed", "passed"):
            reason = REASONS.get(name, "")
            print(f"{name}: {key[0]} over tutti, {key[1]} over gloo. {reason}", flush=True)
            if key == ("failed", "passed") and not reason:
                worse.append(name)
    print(f"{'tutti':10} {'gloo':10} tests")
    for (ours, theirs), count in sorted(counts.items()):
        print(f"{ours:10} {theirs:10} {count}")
    return 1 if worse else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_one(*sys.argv[2:])
    else:
        sys.exit(main())
