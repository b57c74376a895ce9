"""Type checkers agree with the package, and its stubs with what the extensions have."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = os.environ["PYTHONPATH"]
PROGRAM = "tests/bindings/python/typed_program.py"
SECONDS = 240

# Lines with an error, and mypy's name for it.
MISTAKES = {
    "tutti.init().all_reduce(1, op=3)": "arg-type",
    "tutti.init().barrier(timout=3)": "call-arg",
    "tutti.init().split('a')": "arg-type",
    "tutti.init().rank = 3": "misc",
    "for step in training.Run(data='x'): step.los": "attr-defined",
    "training.Run(data=object())": "arg-type",
}


def checked(module, *arguments):
    if importlib.util.find_spec(module.split(".")[0]) is None:
        pytest.skip(f"{module} is not installed for {sys.executable}")
    environment = {**os.environ, "MYPYPATH": PACKAGE}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True, text=True, env=environment, timeout=SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return lambda *files: checked("mypy", "--strict", f"--cache-dir={cache}", *files)


def test_mypy_accepts_a_program_and_the_package(mypy):
    answer = mypy(PROGRAM, *map(str, Path(PACKAGE, "tutti").glob("*.py")))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_mypy_finds_mistakes(mypy, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import tutti\nfrom tutti import training\n" + "\n".join(MISTAKES))
    answer = mypy(str(program))
    for number, kind in enumerate(MISTAKES.values(), start=3):
        assert any(
            f"program.py:{number}: error" in line and f"[{kind}]" in line
            for line in answer.stdout.splitlines()
        ), answer.stdout  # fmt: skip


# Members that nanobind adds to every class and function at run time, without a stub.
OF_NANOBIND = r"""
tutti\._tutti\.(Communicator|Window|Work)(\.__init__)?
tutti\._tutti\.(init|version|wire_formats)
tutti\._training\.Run
"""


def test_the_stubs_are_those_of_the_extensions(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text(OF_NANOBIND)
    answer = checked(
        "mypy.stubtest", f"--allowlist={allowed}", "tutti._tutti", "tutti._training"
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_pyright_accepts_a_program():
    answer = checked("pyright", "--pythonpath", sys.executable, PROGRAM)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 errors, 0 warnings" in answer.stdout


def test_the_program_runs():
    answer = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert answer.returncode == 0, answer.stderr
