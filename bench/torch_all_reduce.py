"""Measures the median time of dist.all_reduce through one backend, on a gradient that its owner has just written.

    torchrun --nproc-per-node 2 bench/torch_all_reduce.py tutti      # alternate with gloo
    torchrun --nproc-per-node 2 bench/torch_all_reduce.py fake       # torch's no-op backend: torch's own overhead
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from torch.testing._internal.distributed.fake_pg import FakeStore

import tutti.torch  # noqa: F401


def median_us(elements, calls):
    tensor = torch.zeros(elements)
    times = []
    for _ in range(calls):
        tensor.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


if sys.argv[1] == "fake":
    dist.init_process_group("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
else:
    dist.init_process_group(sys.argv[1])
for elements, calls in ((2, 500), (8192, 500), (262144, 200), (8 << 20, 20)):
    time_us = median_us(elements, calls)
    if dist.get_rank() == 0:
        print(f"{sys.argv[1]:8} {elements * 4:10} B {time_us:10.1f} us", flush=True)
dist.destroy_process_group()
