"""Measures the time that communication adds to a step of DistributedDataParallel with 25 MB of gradients, alternating between Tutti and Gloo.

    torchrun --nproc-per-node 2 bench/torch_ddp.py

Also runs a third model whose hook sends nothing, and subtracts its step time from those of the others, since DDP itself also
copies all gradients and divides them by the number of ranks. Prints medians over rounds that run each model once.
"""

import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import tutti.torch  # noqa: F401

ROUNDS = 15


def model_over(group):
    torch.manual_seed(0)
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(6)]  # 25 MB of parameters
    return nn.parallel.DistributedDataParallel(nn.Sequential(*layers), process_group=group)


def divide(_, bucket):
    """Divides the gradients as DDP's communication hook does, without the all-reduce."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer().div_(dist.get_world_size()))
    return done


def step_ms(model, batch):
    dist.barrier()
    start = time.perf_counter()
    model(batch).sum().backward()
    dist.barrier()  # makes a step end with its slowest rank, also without communication
    time_ms = (time.perf_counter() - start) * 1e3
    model.zero_grad(set_to_none=False)
    return time_ms


dist.init_process_group("gloo")
models = {"nothing": model_over(None), "gloo": model_over(None), "tutti": model_over(dist.new_group(backend="tutti"))}
models["nothing"].register_comm_hook(None, divide)
batch = torch.ones(4, 1024)
steps = {name: [] for name in models}
for round in range(ROUNDS + 2):
    for name, model in models.items():
        time_ms = step_ms(model, batch)
        if round >= 2:  # DDP rebuilds its buckets after the first step
            steps[name].append(time_ms)
compute = statistics.median(steps["nothing"])
added = {name: statistics.median(steps[name]) - compute for name in ("gloo", "tutti")}
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks, 25 MB: a step without communication {compute:.1f} ms")
    for name, time_ms in added.items():
        print(f"{name:6} adds {time_ms:8.1f} ms")
    print(f"tutti / gloo: {added['tutti'] / added['gloo']:.2f}")
dist.destroy_process_group()
