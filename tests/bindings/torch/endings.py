"""Process groups that end while another thread is in a call that the other ranks do not make. Run by torchrun."""

import threading

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()


def new_group():
    """A group that every rank has: on a rank that still makes it, new_group() fails with an abort by another one."""
    group = dist.new_group()
    dist.barrier()
    return group


def refused(call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError("the call has ended well")


for end in ("abort", "shutdown"):
    for asynchronous in (False, True):
        group = new_group()
        if rank == 0:
            said = []

            def call(group=group, asynchronous=asynchronous, said=said):
                def reduce():
                    work = dist.all_reduce(torch.ones(3), group=group, async_op=asynchronous)
                    if asynchronous:
                        work.wait()

                said.append(refused(reduce))

            thread = threading.Thread(target=call)
            thread.start()
            getattr(group._get_backend(torch.device("cpu")), end)()
            thread.join()
            assert "abort" in said[0] or "destroyed" in said[0], said
        dist.barrier()

group = new_group()
if rank == 0:
    said = []
    thread = threading.Thread(target=lambda: said.append(refused(lambda: dist.monitored_barrier(group))))
    thread.start()
    group._get_backend(torch.device("cpu")).shutdown()
    thread.join()
    assert "destroyed" in said[0], said
dist.barrier()

# Only the call holds a reference to the group.
group = dist.new_group()
tensor = torch.full((3,), rank + 1.0)
work = dist.all_reduce(tensor, group=group, async_op=True)
dist.destroy_process_group(group)
del group
work.wait()
assert (tensor == size * (size + 1) / 2).all()
del work

# A factor is used exactly or refused.
odd = torch.tensor([2**53 + 1])
assert "53 bits" in refused(lambda: dist.all_reduce(torch.ones(3, dtype=torch.int64), op=dist._make_nccl_premul_sum(odd)))
ones = torch.ones(3, dtype=torch.int64)
dist.all_reduce(ones, op=dist._make_nccl_premul_sum(torch.tensor([2**53 + 2])))
assert (ones == size * (2**53 + 2)).all()
dist.barrier()
dist.destroy_process_group()
