"""A rank is killed in the midst of its calls; torchrun starts all of them again, and they go on. Run by

    torchrun --nproc-per-node 3 --max-restarts 1 tests/bindings/torch/elastic.py
"""

import os
import signal

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
tensor = torch.empty(1000)
for step in range(50):
    tensor.fill_(rank + 1.0)
    dist.all_reduce(tensor)
    assert (tensor == size * (size + 1) / 2).all()
    if restarts == 0 and step == 20 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
assert restarts == 1
dist.destroy_process_group()
print(f"rank {rank}: trained to the end after {restarts} restart", flush=True)
