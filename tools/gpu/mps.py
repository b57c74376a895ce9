"""NVIDIA's Multi-Process Service, for ranks that share a GPU: without it the driver gives the GPU to one process
after the other, and kernels that wait for each other take a time slice for each message."""

import os
import shutil
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"


class Mps:
    """A service of its own, for as long as the `with` lasts. `environment`: of programs that use it; empty where
    there is none."""

    def __init__(self, wanted):
        self.folder = None
        self.environment = {}
        if wanted and shutil.which(CONTROL):
            self.folder = tempfile.mkdtemp(prefix="mps")
            self.environment = {
                "CUDA_MPS_PIPE_DIRECTORY": os.path.join(self.folder, "pipe"),
                "CUDA_MPS_LOG_DIRECTORY": os.path.join(self.folder, "log"),
            }
            for path in self.environment.values():
                os.mkdir(path)

    def _control(self, *options, text=None):
        return subprocess.run(
            [CONTROL, *options],
            env={**os.environ, **self.environment},
            input=text,
            text=True,
            capture_output=True,
            timeout=30,
            check=False,
        )

    def __enter__(self):
        if self.environment and self._control("-d").returncode != 0:
            self.environment = {}
        return self

    def __exit__(self, *error):
        if self.environment:
            self._control(text="quit\n")
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
