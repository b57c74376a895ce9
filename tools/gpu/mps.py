"""Starts NVIDIA's Multi-Process Service, for ranks that share a GPU.

Without the service, the driver gives the GPU to the processes in turn, so that kernels that wait for each other take a
time slice for each message."""

import os
import shutil
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"


class Mps:
    """Runs the service during a `with` statement.

    `environment` holds the variables of programs that use the service. It is empty if there is no service."""

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
