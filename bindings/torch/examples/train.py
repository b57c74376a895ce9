"""Data-parallel training under PyTorch: torchrun --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401  (torch 2.14 and later find the backend without it)

dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same model everywhere ...
model = DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
truth = torch.randn(16, 1)
torch.manual_seed(1 + rank)  # ... and other data on each rank
for _ in range(200):
    inputs = torch.randn(64, 16)
    loss = (model(inputs) - inputs @ truth).square().mean()
    optimizer.zero_grad()
    loss.backward()  # overlaps the gradient all-reduce with backward
    optimizer.step()
dist.all_reduce(loss.detach_(), dist.ReduceOp.AVG)
if rank == 0:
    print(f"{size} ranks, loss {loss.item():.2e}")
dist.destroy_process_group()
