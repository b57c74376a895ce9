"""Tests whose body runs on several ranks, as processes that `python -m tutti.run` starts.

@on_ranks(2, 3)
def test_sum(world):
    assert world.all_reduce(1) == world.size
"""

import importlib.util
import subprocess
import sys

import pytest

SECONDS = 30  # what ends a job that hangs


def start_job(ranks, *command):
    """A job of Python processes, its lines without prefixes."""
    launcher = [
        sys.executable,
        "-m",
        "tutti.run",
        "-n",
        str(ranks),
        "--no-prefix",
        "--",
        sys.executable,
    ]
    return subprocess.Popen(
        [*launcher, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_job(ranks, *command, check=True):
    """The same as a subprocess.CompletedProcess."""
    with start_job(ranks, *command) as job:
        try:
            output, errors = job.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            job.kill()
            raise
    if check:
        assert job.returncode == 0, f"the job ended with {job.returncode}:\n{output}{errors}"
    return subprocess.CompletedProcess(job.args, job.returncode, output, errors)


def on_ranks(*sizes):
    """Of a function of a Communicator: a test that runs it on all ranks of jobs of these sizes."""

    def decorate(body):
        @pytest.mark.parametrize("ranks", sizes)
        def test(ranks):
            job = run_job(ranks, __file__, body.__code__.co_filename, body.__name__)
            assert job.stdout.count("passed") == ranks, job.stdout + job.stderr

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
