"""The examples do what they say, and `python -m tutti.run` starts them."""

import re
import subprocess
import sys

import pytest
from jobs import SECONDS, run_job

from tutti import run

EXAMPLES = "bindings/python/examples/"


@pytest.mark.parametrize(
    "name, words",
    [
        ("mean.py", ["2,000,000 samples on 2 ranks, mean 0.000395"]),
        ("gradients.py", ["equal on all ranks: True"]),
        (
            "events.py",
            ["rank 0: the sum is 1, from rank 1 came [1. 1. 1.]", "from rank 0 came [0. 0. 0.]"],
        ),
    ],
)
def test_examples(name, words):
    job = run_job(2, EXAMPLES + name)
    for what in words:
        assert what in job.stdout


def test_training():
    job = run_job(2, EXAMPLES + "train.py", "bindings/python/README.md")
    for what in ("step 10: loss ", "step 60: loss ", "held out: loss ", "\nThe "):
        assert job.stdout.count(what) == 1, job.stdout


def programs_of_the_readme(path="bindings/python/README.md"):
    with open(path, encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)


def test_the_program_of_the_projects_readme():
    job = run_job(2, "-c", programs_of_the_readme("README.md")[0])
    for rank in range(2):
        assert f"rank {rank} of 2: 0.5" in job.stdout


def test_the_training_of_the_readme(tmp_path):
    with open("bindings/python/README.md", encoding="utf-8") as file:
        (tmp_path / "corpus.txt").write_text(file.read())
    program = f"import os\nos.chdir({str(tmp_path)!r})\n" + programs_of_the_readme()[1]
    run_job(2, "-c", program)
    assert any((tmp_path / "DIR").iterdir())


def test_the_program_of_the_readme():
    program = programs_of_the_readme()[0]
    check = """
assert total.tolist() == [3] * 1000 and gradients.tolist() == [1] * 1000
assert everything.tolist() == [1] * 3000
"""
    run_job(3, "-c", program + check)


def test_scripts_run_under_this_interpreter():
    command = [sys.executable, "-m", "tutti.run", "-n", "2", EXAMPLES + "mean.py"]
    job = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert job.returncode == 0 and "on 2 ranks" in job.stdout, job.stderr


@pytest.mark.parametrize(
    "given, wanted",
    [
        (
            ["-n", "4", "a.py", "-n", "b.py"],
            ["-n", "4", "--", sys.executable, "a.py", "-n", "b.py"],
        ),
        (["-n", "4", "-m", "module"], ["-n", "4", "--", sys.executable, "-m", "module"]),
        (["-n", "4", "--", "./program", "a.py"], ["-n", "4", "--", "./program", "a.py"]),
        (["--help"], ["--help"]),
    ],
)
def test_what_is_started(given, wanted):
    assert run.command_line(given)[2:] == wanted
