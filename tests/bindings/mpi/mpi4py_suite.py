#!/usr/bin/env python3
"""mpi4py's own tests with Tutti under them, beside the same tests without.

    bazel build -c opt //tools:tutti
    tests/bindings/mpi/mpi4py_suite.py [--mpi openmpi|mpich] [--ranks 2,3,4,5,8] [--only REGEX]

Gets mpi4py's source and NumPy from PyPI, and builds mpi4py for each MPI library that is installed, under
.cache/mpi4py. Each file of its tests runs once without Tutti and once with it, all calls through it
(TUTTI_MPI_SMALLEST=0). Prints what differs on any rank, and how many calls of rank 0 went through; fails if
anything differs. On two cores: a minute to build, then 5 minutes for 3 ranks of one library, more for more.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "mpi4py"
VERSION = "4.1.2"
SECONDS = 300  # for one file on all ranks
LEFT_OUT = ["test_spawn"]  # with Open MPI 4.1 it does not end, without Tutti either


def environment(**more):
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                OMPI_MCA_btl="vader,self", OMPI_MCA_pml="ob1", **more)


def prepare(mpi):
    """The interpreter that has mpi4py for this library."""
    python = CACHE / mpi / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", CACHE / mpi], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "numpy"], check=True)
    subprocess.run([*pip, "--no-cache-dir", "--no-binary", "mpi4py", f"mpi4py=={VERSION}"], check=True,
                   env=environment(MPICC=f"mpicc.{mpi}", MPI4PY_BUILD_MPICC=f"mpicc.{mpi}", CFLAGS="-O0 -g0"))
    return python


def source():
    """The folder of mpi4py's tests."""
    tests = CACHE / f"mpi4py-{VERSION}" / "test"
    if not tests.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "mpi4py",
                        f"mpi4py=={VERSION}", "--dest", CACHE], check=True)
        shutil.unpack_archive(CACHE / f"mpi4py-{VERSION}.tar.gz", CACHE)
    return tests


class Outcomes(unittest.TestResult):
    """{test: what became of it}."""

    def __init__(self):
        super().__init__()
        self.by_test = {}

    def note(self, test, outcome):
        if self.by_test.get(test.id()) in (None, "passed"):
            self.by_test[test.id()] = outcome

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, err):
        self.note(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed")


def be_rank(tests, name, folder):
    """One rank: runs a file of tests, and leaves what became of them in the folder."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, tests)
    os.chdir(folder)
    from mpi4py import MPI  # pylint: disable=import-outside-toplevel
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromName(name).run(outcomes)
    for _, text in outcomes.failures + outcomes.errors:
        print(text, file=sys.stderr)
    rank = MPI.COMM_WORLD.Get_rank()
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(outcomes.by_test), encoding="utf-8")


def run_file(mpi, python, tests, name, ranks, with_tutti):
    """({rank: {test: outcome}}, standard error)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [f"mpirun.{mpi}", "-n", str(ranks), str(python), __file__, "--be-rank", str(tests), name, folder]
        more = {}
        if with_tutti:
            command = [str(ROOT / "bazel-bin/tools/tutti"), "mpi", "--", *command]
            more = {"TUTTI_MPI_REPORT": "1", "TUTTI_MPI_SMALLEST": "0"}
        with subprocess.Popen(command, env=environment(**more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as process:
            try:
                errors = process.communicate(timeout=SECONDS)[1]
            except subprocess.TimeoutExpired:
                process.terminate()
                errors = process.communicate()[1] + f"\nnot done after {SECONDS} s\n"
        outcomes = {}
        for rank in range(ranks):
            file = pathlib.Path(folder, f"{rank}.json")
            outcomes[rank] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return outcomes, errors


def calls_of(errors):
    """{call: (went through, all)} of the report of rank 0."""
    rows = re.findall(r"^(MPI_\w+)((?: +\d+)+)$", errors, re.MULTILINE)
    return {call: (int(numbers.split()[0]), sum(map(int, numbers.split()))) for call, numbers in rows}


def compare(mpi, python, tests, ranks, only):
    """Runs all files both ways; prints, and returns how many tests differ."""
    passed = collections.Counter()
    calls = collections.defaultdict(lambda: [0, 0])
    different = 0
    for file in sorted(tests.glob("test_*.py")):
        if not re.search(only, file.stem) or file.stem in LEFT_OUT:
            continue
        plain, _ = run_file(mpi, python, tests, file.stem, ranks, False)
        tutti, errors = run_file(mpi, python, tests, file.stem, ranks, True)
        for call, (through, total) in calls_of(errors).items():
            calls[call][0] += through
            calls[call][1] += total
        passed.update(plain[0].values())
        differing = [(rank, test, plain[rank].get(test), tutti[rank].get(test)) for rank in range(ranks)
                     for test in plain[rank].keys() | tutti[rank].keys()
                     if plain[rank].get(test) != tutti[rank].get(test)]
        for rank, test, without, with_it in sorted(differing):
            print(f"  rank {rank}: {test}: {without} without Tutti, {with_it} with it")
        if differing:
            print(errors[-3000:])
        different += len({test for _, test, _, _ in differing})
        print(f"{mpi}, {ranks} ranks, {file.stem}: {len(plain[0])} tests, {len(differing)} differ", flush=True)
    print(f"{mpi}, {ranks} ranks: {dict(passed)} without Tutti; {different} differ with it")
    through = sum(number for number, _ in calls.values())
    print(f"  of rank 0's {sum(number for _, number in calls.values())} collective calls {through} went through")
    for call, (number, total) in sorted(calls.items()):
        print(f"    {call:<30}{number:>9} of {total}")
    return different


def main():
    if sys.argv[1:2] == ["--be-rank"]:
        be_rank(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], action="append")
    parser.add_argument("--ranks", default="2,3,4,5,8")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the names of its files")
    arguments = parser.parse_args()
    tests = source()
    different = 0
    for mpi in arguments.mpi or ["openmpi", "mpich"]:
        if shutil.which(f"mpirun.{mpi}") is None:
            print(f"{mpi}: not installed")
            continue
        python = prepare(mpi)
        for ranks in map(int, arguments.ranks.split(",")):
            different += compare(mpi, python, tests, ranks, arguments.only)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
