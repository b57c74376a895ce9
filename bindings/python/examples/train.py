"""Trains a small model on a text: python -m tutti.run -n 2 train.py TEXT"""

import sys

import numpy as np

from tutti import training

with training.Run(data=sys.argv[1:], model="gpt2", layers=2, width=64, context=64, steps=60) as run:
    first = run.communicator.rank == 0
    for step in run:
        if first and step.step % 10 == 0:
            norm = np.linalg.norm(run.parameters["wte.weight"])
            print(f"step {step.step}: loss {step.loss:.4f}, embedding's norm {norm:.2f}")
    held_out = run.evaluate()
    if first:
        print(f"held out: loss {held_out.loss:.4f}, {held_out.accuracy:.0%} right")
        print(run.sample("The ", tokens=60))
