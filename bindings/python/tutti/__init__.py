"""Tutti: collective communication among the ranks of a job.

import numpy as np
import tutti

world = tutti.init()  # python -m tutti.run -n 4 script.py, torchrun, srun, mpirun, ..., or alone
total = world.all_reduce(np.arange(3.0))  # the sum over all ranks
"""

from ._arrays import Message
from ._communicator import ANY_SOURCE, ANY_TAG, OPS, WIRE_FORMATS, Communicator, Options, init
from ._errors import Error, ErrorCode
from ._tutti import Work, version
from ._window import Window

__version__ = version()
__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "OPS",
    "Communicator",
    "Error",
    "ErrorCode",
    "Message",
    "Options",
    "WIRE_FORMATS",
    "Window",
    "Work",
    "init",
    "version",
]
