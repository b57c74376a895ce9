"""Compiles the extension for the torch that is installed, once, and loads it.

torch has no stable interface for backends: an extension for 2.15 does not load in 2.14. So it is compiled where it
is used, which takes a C++20 compiler and two minutes, and kept in ~/.cache/tutti (or $TUTTI_TORCH_CACHE), a
folder for each torch, Python and state of the sources.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

_HERE = Path(__file__).resolve().parent
_NAME = "_backend"


def _first(places, what):
    for place in places:
        if place and Path(place).exists():
            return Path(place)
    raise ImportError(f"tutti.torch: no {what}; looked in {', '.join(str(p) for p in places if p)}")


def _sources():
    return _first([_HERE / "extension"], "sources of the extension")


def _library():
    given = os.environ.get("TUTTI_LIBRARY")
    return _first([given, _HERE.parent / "libtutti.so.0"], "libtutti.so.0 (set TUTTI_LIBRARY)")


def _header():
    return _first([_HERE / "include"], "folder with tutti.h")


def _folder(sources, library):
    state = hashlib.sha256()
    for text in (torch.__version__, sys.version, str(library)):
        state.update(text.encode())
    for source in sorted(sources.iterdir()) + [_header() / "tutti.h"]:
        state.update(source.read_bytes())
    cache = os.environ.get("TUTTI_TORCH_CACHE") or Path.home() / ".cache" / "tutti"
    return Path(cache) / f"torch-{torch.__version__}-{state.hexdigest()[:16]}"


def _run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ImportError(f"tutti.torch: {command[0]} is needed to compile the extension for torch "
                          f"{torch.__version__}: install g++ 12 or later, or set CXX") from error
    if done.returncode != 0:
        raise ImportError(f"tutti.torch: compiling the extension failed: {' '.join(command)}\n{done.stderr[-4000:]}")


def _compile(folder, target, sources, library):
    root = Path(torch.__file__).parent
    compiler = os.environ.get("CXX", "g++")
    flags = [
        "-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={_NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{sources}", f"-I{_header()}",
        "-isystem", f"{root}/include", "-isystem", f"{root}/include/torch/csrc/api/include",
        "-isystem", sysconfig.get_paths()["include"],
    ]
    units = sorted(sources.glob("*.cc"))
    print(f"tutti: compiling the backend for torch {torch.__version__}, once (into {folder})", file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda unit: _run([compiler, *flags, "-c", str(unit), "-o", str(folder / f"{unit.stem}.o")]), units))
    unfinished = folder / "unfinished.so"
    _run([compiler, "-shared", "-o", str(unfinished), *[str(folder / f"{unit.stem}.o") for unit in units],
          f"-L{root}/lib", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", str(library),
          f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath,{root}/lib"])
    unfinished.rename(target)
    for unit in units:
        (folder / f"{unit.stem}.o").unlink()


def load():
    sources, library = _sources(), _library()
    folder = _folder(sources, library)
    target = folder / f"{_NAME}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as lock:  # the ranks of a host come here at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _compile(folder, target, sources, library)
    spec = importlib.util.spec_from_file_location(_NAME, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
