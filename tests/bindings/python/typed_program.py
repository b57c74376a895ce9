"""A program of a user's with types, for type checkers: every kind of call, and what it returns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tutti
from tutti import training


def collectives(world: tutti.Communicator) -> float:
    rank: int = world.rank
    values: NDArray[np.float32] = np.full(8, rank, np.float32)
    world.all_reduce(values, "max", out=values, timeout=5.0, deterministic=True)
    total = world.all_reduce(values)
    world.broadcast(values, root=0, algorithm="binomial")
    work: tutti.Work = world.all_gather_async(values, counts=[8] * world.size)
    done: bool = work.test() or work.wait_for(0.5)
    everything = work.wait()
    part: tutti.Communicator | None = world.split(rank % 2, key=-rank)
    if part is not None:
        part.close()
    return float(total[0]) + float(everything.sum()) + done


def messages(world: tutti.Communicator) -> tuple[int, int]:
    world.send_async(np.arange(3), world.rank, tag=7).wait()
    message: tutti.Message = world.probe(tutti.ANY_SOURCE, tutti.ANY_TAG)
    message = world.recv(np.empty(3, int), message.source, message.tag, may_be_shorter=True)
    waiting: tutti.Message | None = world.probe_now()
    assert waiting is None
    return message.source, message.tag


async def later(world: tutti.Communicator) -> list[float]:
    results = await asyncio.gather(*(world.all_reduce_async(float(i)) for i in range(3)))
    return [float(result) for result in results]


def errors(world: tutti.Communicator) -> int | None:
    try:
        world.barrier()
    except tutti.Error as error:
        code: tutti.ErrorCode = error.code
        return error.rank if code == tutti.ErrorCode.RANK_DIED else None
    return None


def train(world: tutti.Communicator, data: Path) -> dict[str, float]:
    losses: list[float] = []
    with training.Run(world, data=[data], layers=1, lr=1e-3, checkpoint=None, resume=False) as run:
        for step in run:
            losses.append(step.loss)
            if step.validation_loss is not None and step.validation_loss < 1:
                break
        for name, array in run.parameters.items():
            norm: float = float(np.linalg.norm(array))
            run.parameters[name] = array / max(1, norm)
        evaluation: training.Evaluation = run.evaluate()
        text: str = run.sample("The ", tokens=20, temperature=0)
    return {"loss": evaluation.loss, "first": losses[0], "length": len(text)}


if __name__ == "__main__":
    with tutti.init() as everyone:
        print(collectives(everyone), messages(everyone), asyncio.run(later(everyone)))
