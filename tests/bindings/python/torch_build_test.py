"""How the extension for torch is compiled (tutti/torch/_build.py), with a torch and a compiler that are made up."""

import os
import subprocess
import sys
from pathlib import Path

import tutti

_MODULE = Path(tutti.__file__).parent / "torch" / "_build.py"

# Records what it compiles, and fails if a file named FAIL exists.
_COMPILER = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    -c) source=$2; shift ;;
    -o) target=$2; shift ;;
  esac
  shift
done
[ -z "${source:-}" ] || echo "$(basename "$source")" >> "$LOG"
case ${source:-} in */$BROKEN) echo "no room on the disk" >&2; exit 1 ;; esac
touch "$target"
"""

_PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_build", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.build())
"""


def _build(folder, broken):
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch" / "__init__.py").write_text("__version__ = '9.9'\nclass _C: _GLIBCXX_USE_CXX11_ABI = True\n")
    compiler = folder / "compiler"
    compiler.write_text(_COMPILER)
    compiler.chmod(0o755)
    (folder / "log").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(folder), "CXX": str(compiler), "LOG": str(folder / "log"),
                   "BROKEN": broken, "TUTTI_TORCH_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(_MODULE)], env=environment, capture_output=True, text=True)
    return done, (folder / "log").read_text().split()


def test_an_interrupted_build_continues(tmp_path):
    sources = sorted(path.name for path in (_MODULE.parent / "extension").glob("*.cc"))
    failed, compiled = _build(tmp_path, sources[-1])
    assert failed.returncode != 0
    assert "no room on the disk" in failed.stderr
    assert sorted(compiled) == sources
    done, compiled = _build(tmp_path, "none")
    assert done.returncode == 0, done.stderr
    assert compiled == [sources[-1]]
    assert f"1 of {len(sources)} files" in done.stderr
    assert f"compiled {sources[-1]} (1 of 1, " in done.stderr
    assert Path(done.stdout.strip()).exists()
    again, compiled = _build(tmp_path, "none")
    assert (again.returncode, again.stderr, compiled) == (0, "", [])
