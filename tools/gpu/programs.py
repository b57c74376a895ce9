"""Finds the programs that tools/gpu_check runs: those of an archive of `--pack`, or else built here."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

TESTS = [
    "tests/collectives/gpu/executor_test",
    "tests/collectives/gpu/device_calls_test",
    "tests/collectives/gpu/windows_test",
    "tests/bindings/nccl/nccl_test",
]
PEERS = ["bench/peers/gpu_floor_peer", "bench/peers/nccl_peer"]
TUTTI = "tools/tutti"
OUR_NCCL = "lib/nccl"

# Libraries of the operating system, which a program must not bundle.
SYSTEM_LIBRARIES = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)\.so")


class Programs:
    def __init__(self, root):
        self.root = root
        self.tutti = os.path.join(root, TUTTI)
        self.tests = [os.path.join(root, test) for test in TESTS]
        if not os.access(self.tutti, os.X_OK):
            sys.exit(f"gpu_check: {self.tutti} is not there; build it: bazel build -c opt {_labels()[0]}")

    def environment(self, program="", **more):
        """Returns the environment variables of `program`, with `more` added.

        Ranks that share a GPU need a hardware queue for each stream (the driver's default is 8 queues), and their
        kernels must be loaded before other kernels wait for them."""
        own = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}
        if os.path.isdir(os.path.join(self.root, "lib")):
            folders = [OUR_NCCL] if "/nccl/" in program else []
            paths = [os.path.join(self.root, folder) for folder in [*folders, "lib"]]
            own["LD_LIBRARY_PATH"] = ":".join([*paths, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        return {**own, **more}


def _labels():
    return ["//" + ":".join(path.rsplit("/", 1)) for path in [TUTTI] + PEERS + TESTS]


def _build(repository):
    subprocess.run([os.path.join(repository, "setup"), "--tests"], check=True)
    top = os.path.dirname(repository)
    if not any(os.access(os.path.join(path, "nvcc"), os.X_OK) for path in _compiler_places()):
        subprocess.run([os.path.join(repository, "setup"), "--cuda"], check=True)
    subprocess.run(["bazel", "build", "-c", "opt", *_labels()], check=True, cwd=top)
    return os.path.join(top, "bazel-bin")


def _compiler_places():
    paths = os.environ.get("PATH", "").split(":") + ["/usr/local/cuda/bin"]
    return paths + [os.path.join(os.environ.get("CUDA_PATH", "/nowhere"), "bin")]


def find_or_build(here):
    """Returns the folder of the programs, which it builds unless `here`, the folder of gpu_check, is an unpacked archive."""
    packed = os.path.join(here, "programs")
    return packed if os.path.isdir(packed) else _build(here)


def _libraries_of(program):
    output = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", output, re.MULTILINE)
    return [(name, path) for name, path in found if not SYSTEM_LIBRARIES.match(name)]


def pack(here, file):
    """Packs the programs with all libraries that another machine may lack."""
    built = _build(here)
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "programs")
        os.makedirs(os.path.join(root, "lib"))
        for program in [TUTTI] + PEERS + TESTS:
            target = os.path.join(root, program)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(built, program), target)
            subprocess.run(["strip", "--strip-unneeded", target], check=False)
            for name, path in _libraries_of(os.path.join(built, program)):
                # Tutti's shim, for its test: next to the others the benchmark would load it as NCCL.
                library = os.path.join(root, OUR_NCCL if name.startswith("libnccl") else "lib", name)
                if os.path.exists(library):
                    continue
                os.makedirs(os.path.dirname(library), exist_ok=True)
                shutil.copy(path, library)
                subprocess.run(["strip", "--strip-unneeded", library], check=False)
        shutil.copy(os.path.join(here, "gpu_check"), folder)
        modules = os.path.join(folder, "gpu")
        shutil.copytree(os.path.join(here, "gpu"), modules, ignore=shutil.ignore_patterns("__pycache__", "BUILD"))
        with tarfile.open(file, "w:gz") as archive:
            for name in sorted(os.listdir(folder)):
                archive.add(os.path.join(folder, name), name)
    print(f"gpu_check: {file}: {os.path.getsize(file) / 1e6:.1f} MB; unpack it on the machine and run ./gpu_check")
