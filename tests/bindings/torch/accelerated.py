"""accelerate over a process group of Tutti's, which was made before: its reduce, its gather and a DDP step."""

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  (torch before 2.14 does not find it by itself)

dist.init_process_group("tutti")
from accelerate import Accelerator  # noqa: E402

accelerator = Accelerator(cpu=True)
ranks = dist.get_world_size()
assert dist.get_backend() == "tutti", dist.get_backend()
assert (accelerator.num_processes, accelerator.process_index) == (ranks, dist.get_rank())
own = torch.full((3,), float(accelerator.process_index + 1))
assert accelerator.reduce(own.clone(), "sum").tolist() == [ranks * (ranks + 1) / 2] * 3
assert accelerator.gather(own).tolist() == [float(rank + 1) for rank in range(ranks) for _ in range(3)]

model = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.constant_(model.weight, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(torch.full((1, 4), float(accelerator.process_index))).sum())
optimizer.step()
mean = (ranks - 1) / 2
assert torch.equal(accelerator.unwrap_model(model).weight.detach(), torch.full((1, 4), 1 - mean))
dist.destroy_process_group()
