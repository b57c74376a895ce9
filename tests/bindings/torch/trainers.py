"""What trains over a process group, on the backend: DDP's hooks, FSDP2, DTensor, pipelines, checkpoints, torch.compile. Run by
torchrun."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Shard, distribute_tensor

import tutti.torch  # noqa: F401


def same_everywhere(tensor):
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor)
    assert all(torch.equal(part, parts[0]) for part in parts)


def train(model, steps, features):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.randn(4, features)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def hooks():
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    train(model, 3, 64)
    same_everywhere(model.module.weight.detach())
    # Its callbacks wait for further calls.
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, 5, 64)
    same_everywhere(model.module[0].weight.detach())


def sharded():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    fully_shard(model, mesh=mesh)
    train(model, 3, 16)
    same_everywhere(model[0].weight.full_tensor().detach())


def distributed_tensors():
    torch.manual_seed(0)
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    x, y = distribute_tensor(a, mesh, [Shard(0)]), distribute_tensor(b, mesh, [Shard(0)])
    assert torch.allclose((x @ y).full_tensor(), a @ b, atol=1e-5)
    assert torch.equal(x.redistribute(mesh, [Shard(1)]).full_tensor(), a)


def functional_collectives():
    world = dist.group.WORLD
    assert (functional.all_reduce(torch.ones(3), "sum", world) == size).all()
    assert functional.all_gather_tensor(torch.ones(3) * rank, 0, world).sum() == 3 * size * (size - 1) / 2
    assert (functional.reduce_scatter_tensor(torch.ones(size * 2), "sum", 0, world) == size).all()


def compiled():
    world = dist.group.WORLD

    def mix(x):
        everywhere = functional.all_reduce(x * 2, "sum", world)
        gathered = functional.all_gather_tensor(everywhere + 1, 0, world)
        return functional.reduce_scatter_tensor(gathered, "sum", 0, world)

    assert (torch.compile(mix, fullgraph=True)(torch.ones(4)) == (2 * size + 1) * size).all()
    model = torch.compile(nn.parallel.DistributedDataParallel(nn.Linear(16, 16)))
    train(model, 2, 16)
    same_everywhere(next(model.parameters()).detach())


def pipelines():
    for schedule in (ScheduleGPipe, Schedule1F1B):
        stage = PipelineStage(nn.Linear(8, 8), rank, size, torch.device("cpu"))
        pipeline = schedule(stage, 4, loss_fn=nn.functional.mse_loss)
        x = torch.randn(8, 8)
        losses = []
        if rank == 0:
            pipeline.step(x)
        elif rank == size - 1:
            pipeline.step(target=x, losses=losses)
            assert len(losses) == 4
        else:
            pipeline.step()


def checkpoints():
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    saved, loaded = {"w": torch.arange(6.0)}, {"w": torch.zeros(6)}
    checkpoint.save(saved, checkpoint_id=folder[0])
    checkpoint.load(loaded, checkpoint_id=folder[0])
    assert torch.equal(saved["w"], loaded["w"])


def coalesced():
    tensors = [torch.ones(3) for _ in range(3)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as calls:
        for tensor in tensors:
            dist.all_reduce(tensor)
    calls.wait()
    assert all((tensor == size).all() for tensor in tensors)


dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
for trainer in (hooks, sharded, distributed_tensors, functional_collectives, compiled, pipelines, checkpoints, coalesced):
    trainer()
    if rank == 0:
        print(f"{trainer.__name__}: right", flush=True)
dist.destroy_process_group()
