"""Tests whose body runs on several ranks, as processes that `python -m tutti.run` starts.

    @on_ranks(2, 3)
    def test_sum(world):
        assert world.all_reduce(1) == world.size
"""

import importlib.util
import subprocess
import sys

import pytest

SECONDS = 120  # what ends a job that hangs


def run_job(ranks, *command, check=True):
    """The job as a subprocess.CompletedProcess, its ranks' lines without prefixes."""
    job = subprocess.run(
        [sys.executable, "-m", "tutti.run", "-n", str(ranks), "--no-prefix", "--", sys.executable, *command],
        capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
    if check:
        assert job.returncode == 0, f"the job ended with {job.returncode}:\n{job.stdout}{job.stderr}"
    return job


def on_ranks(*sizes):
    """Of a function of a Communicator: a test that runs it on all ranks of jobs of these sizes."""

    def decorate(body):
        @pytest.mark.parametrize("ranks", sizes)
        def test(ranks):
            job = run_job(ranks, __file__, body.__code__.co_filename, body.__name__)
            assert job.stdout.count("passed\n") == ranks, job.stdout + job.stderr

        test.body = body
        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        return test

    return decorate


def main(file, name):
    import tutti

    spec = importlib.util.spec_from_file_location("test_module", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tutti.init() as world:
        getattr(module, name).body(world)
        world.barrier()
    print("passed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
