"""Every call of the backend on the ranks of a job, with values whose result is exact. Run by torchrun."""

import os

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size + 1) // 2
for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.half, torch.bfloat16, torch.float, torch.double, torch.complex64):
    t = torch.full((7,), rank + 1, dtype=dtype)
    dist.all_reduce(t)
    assert torch.equal(t, torch.full((7,), total, dtype=dtype)), t
t = torch.full((4, 6), rank + 1.0).t()
dist.all_reduce(t, op=dist.ReduceOp.MAX)
assert (t == size).all()
t = torch.tensor([rank == 0, True, False])
dist.all_reduce(t)
assert t.tolist() == [True, True, False]
t = torch.full((5,), rank + 1.0)
dist.all_reduce(t, op=dist.ReduceOp.AVG)
assert (t == total / size).all()
work = dist.all_reduce(torch.full((3,), 1.0), async_op=True)
assert work.get_future().wait()[0].tolist() == [size] * 3
work.wait()
outs = [torch.empty(3) for _ in range(size)]
dist.all_gather(outs, torch.full((3,), float(rank)))
assert [o[0].item() for o in outs] == list(range(size))
out = torch.empty(2 * size)
dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
assert out.tolist() == [float(r) for r in range(size) for _ in range(2)]
out = torch.empty(2)
dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
assert out.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
dist.reduce_scatter(out, [torch.full((2,), float(r)) for r in range(size)])
assert (out == size * rank).all()
out = torch.empty(size, dtype=torch.int64)
dist.all_to_all_single(out, torch.arange(size) + 10 * rank)
assert out.tolist() == [10 * r + rank for r in range(size)]
out.zero_()
splits = [1] * size if rank == 0 else None  # not all ranks need say that the blocks are equal
dist.all_to_all_single(out, torch.arange(size) + 10 * rank, splits, splits)
assert out.tolist() == [10 * r + rank for r in range(size)]
outs = [torch.empty(rank + 1) for _ in range(size)]
dist.all_to_all(outs, [torch.full((r + 1,), float(rank)) for r in range(size)])
assert [o[0].item() for o in outs] == list(range(size))
t = torch.full((3,), float(rank))
dist.broadcast(t, size - 1)
assert (t == size - 1).all()
t = torch.full((3,), 1.0)
dist.reduce(t, 0)
assert (t == (size if rank == 0 else 1)).all()
outs = [torch.empty(2) for _ in range(size)] if rank == 0 else None
dist.gather(torch.full((2,), float(rank)), outs, 0)
assert rank != 0 or [o[0].item() for o in outs] == list(range(size))
t = torch.empty(2)
dist.scatter(t, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None, 0)
assert (t == rank).all()
dist.barrier()
dist.monitored_barrier()
right, left = (rank + 1) % size, (rank - 1) % size
inbox = torch.empty(4)
for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((4,), float(rank)), right), dist.P2POp(dist.irecv, inbox, left)]):
    w.wait()
assert (inbox == left).all()
if rank == 0:
    seen = set()
    for _ in range(size - 1):
        t = torch.empty(1)
        sender = dist.recv(t)
        assert t.item() == sender
        seen.add(sender)
    assert len(seen) == size - 1
else:
    dist.send(torch.full((1,), float(rank)), 0)
# torch's debug mode compares these among the ranks.
numbers = [None] * size
dist.all_gather_object(numbers, dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group())
assert len(set(numbers)) == 1, numbers
# Compared by members only.
group = dist.new_group([0, 1]) if size > 1 else dist.group.WORLD
if rank < 2:
    t = torch.ones(1)
    dist.all_reduce(t, group=group)
    assert t.item() == min(size, 2)
for bad in [torch.ones(2).to_sparse()]:
    try:
        dist.all_reduce(bad)
    except RuntimeError as error:
        assert "tutti" in str(error) or "sparse" in str(error), error
    else:
        raise AssertionError("it was taken")
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert [o["rank"] for o in objects] == list(range(size))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 3))
model(torch.full((4, 10), float(rank))).sum().backward()
assert (model.module.weight.grad == 4 * (size - 1) / 2).all()
if "KEEP" not in os.environ:  # who does not leave is taken out by Python's end
    dist.destroy_process_group()
print(f"rank {rank}: all calls are right")
