"""Compiles the extension for the installed torch once, and loads it.

torch has no stable interface for backends: an extension for 2.15 does not load in 2.14. So it is
compiled on the machine that uses it, which takes a C++20 compiler and a few minutes, and is cached
in ~/.cache/tutti (or $TUTTI_TORCH_CACHE), in a directory per torch, Python and version of the
sources. An interrupted build continues with the missing files. `python -m tutti.torch.build`
compiles it before the first use.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch

_HERE = Path(__file__).resolve().parent
_SOURCES = _HERE / "extension"
_HEADER = _HERE / "include"
_LIBRARY = _HERE.parent / "libtutti.so.0"
_NAME = "_backend"


def _folder():
    state = hashlib.sha256()
    for text in (torch.__version__, sys.version, str(_LIBRARY)):
        state.update(text.encode())
    for source in sorted(_SOURCES.iterdir()) + sorted(_HEADER.iterdir()):
        state.update(source.read_bytes())
    cache = os.environ.get("TUTTI_TORCH_CACHE") or os.path.expanduser("~/.cache/tutti")
    if cache.startswith("~"):  # a user without a home directory, as in containers
        raise ImportError("tutti.torch: the extension is cached in the home directory, which this user lacks; set "
                          "TUTTI_TORCH_CACHE to a writable directory")
    return Path(cache) / f"torch-{torch.__version__}-{state.hexdigest()[:16]}"


def _say(text):
    print(f"tutti: {text}", file=sys.stderr, flush=True)


def _run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ImportError(f"tutti.torch: {command[0]} is required to compile the extension for torch "
                          f"{torch.__version__}: install g++ 12 or later, or set CXX") from error
    if done.returncode != 0:
        raise ImportError(f"tutti.torch: compiling the extension failed: {' '.join(command)}\n{done.stderr[-4000:]}")


def _compile(folder, target):
    root = Path(torch.__file__).parent
    compiler = os.environ.get("CXX", "g++")
    flags = [
        "-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={_NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{_SOURCES}", f"-I{_HEADER}",
        "-isystem", f"{root}/include", "-isystem", f"{root}/include/torch/csrc/api/include",
        "-isystem", sysconfig.get_paths()["include"],
    ]
    units = sorted(_SOURCES.glob("*.cc"))
    missing = [unit for unit in units if not (folder / f"{unit.stem}.o").exists()]
    start = time.monotonic()
    _say(f"compiling the backend for torch {torch.__version__}, once: {len(missing)} of {len(units)} files (into {folder})")

    def compile_unit(unit):
        unfinished = folder / f"{unit.stem}.unfinished.o"
        _run([compiler, *flags, "-c", str(unit), "-o", str(unfinished)])
        unfinished.rename(folder / f"{unit.stem}.o")
        return unit.name

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, future in enumerate(as_completed([pool.submit(compile_unit, unit) for unit in missing]), 1):
            _say(f"compiled {future.result()} ({done} of {len(missing)}, {time.monotonic() - start:.0f} s)")
    unfinished = folder / "unfinished.so"
    _run([compiler, "-shared", "-o", str(unfinished), *[str(folder / f"{unit.stem}.o") for unit in units],
          f"-L{root}/lib", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", str(_LIBRARY),
          f"-Wl,-rpath,{_LIBRARY.parent}", f"-Wl,-rpath,{root}/lib"])
    unfinished.rename(target)
    for unit in units:
        (folder / f"{unit.stem}.o").unlink()


def build():
    """Compiles the extension unless it is there. Returns its path."""
    folder = _folder()
    target = folder / f"{_NAME}.so"
    if not target.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open(folder / "lock", "w")  # the ranks of a host arrive here concurrently
        except OSError as error:
            raise ImportError(f"tutti.torch: the extension is cached in {folder}, which cannot be "
                              f"created ({error.strerror}); set TUTTI_TORCH_CACHE to a writable directory") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _compile(folder, target)
    return target


def load():
    target = build()
    spec = importlib.util.spec_from_file_location(_NAME, target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
