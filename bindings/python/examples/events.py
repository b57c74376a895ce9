"""Calls that an event loop waits for: python -m tutti.run -n 2 events.py"""

import asyncio

import numpy as np

import tutti


async def main(world: tutti.Communicator) -> None:
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    received = np.empty(3)
    sent = world.send_async(np.full(3, float(world.rank)), right)
    total, _, _ = await asyncio.gather(
        world.all_reduce_async(world.rank), world.recv_async(received, left), sent
    )
    print(f"rank {world.rank}: the sum is {total}, from rank {left} came {received}")


with tutti.init() as world:
    asyncio.run(main(world))
