"""Training on all ranks of a job: configuration in, an iterator of steps out.

from tutti import training

with training.Run(data="corpus.txt", model="gpt2", layers=2, steps=100) as run:
    for step in run:
        print(step.step, step.loss)
    print(run.evaluate().loss)
"""

from __future__ import annotations

import atexit
import contextlib
import json
import numbers
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from . import _training
from ._communicator import Communicator, init
from ._errors import Error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

__all__ = ["Evaluation", "Option", "Parameters", "Run", "Step"]

_Word = Union[str, int, float, "os.PathLike[str]"]
# The value of an option: True for a flag; a sequence if several values are allowed. None and False
# omit the option.
Option = Union[_Word, bool, None, Sequence[_Word]]


@dataclass(frozen=True)
class Step:
    """The result of a step: a line of `tutti train --json`. The same on all ranks, except
    bytes_sent, waiting_share and times."""

    step: int  # counted from 1
    loss: float  # mean over the step's targets, in nats, before the update
    lr: float
    grad_norm: float  # before clipping
    # over all ranks, since the run started here; samples for models without tokens
    tokens_per_s: float
    tokens_per_s_step: float  # in this step
    elapsed_s: float  # in steps, since the run started here
    processor_s: float  # processor time spent on this step for this rank
    bytes_sent: float  # by this rank in this step
    waiting_share: float  # share of this rank's time in steps spent waiting for others
    loss_scale: float = 1.0
    overflow: str | None = None  # the parameter whose gradient overflowed; the update was skipped
    noise_scale: float | None = None  # in samples, if known
    validation_loss: float | None = None  # at the steps that validate_every selects
    perplexity: float | None = None  # of the validation, for language models
    losses: dict[str, float] | None = None  # additional losses of the model's units, if any
    # by axis (tensor, data, pipeline), if any bytes were sent
    bytes_sent_by_axis: dict[str, float] | None = None
    epochs: list[float] | None = None  # passes over each data set so far


class Evaluation(NamedTuple):
    """The model's quality on held-out data."""

    loss: float  # mean, in nats
    accuracy: float  # fraction of correct predictions
    targets: int


def _words(options: Mapping[str, Option]) -> list[str]:
    """Converts options to the command line: layers=2 becomes --layers=2, weight_decay
    --weight-decay."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            words += [f"{option}={_word(one)}" for one in value]
        else:
            words.append(f"{option}={_word(value)}")
    return words


def _pipeline_of(config: object) -> object:
    """Returns the number of pipeline stages that a configuration names."""
    if not isinstance(config, Mapping):
        return 1
    parallel = config.get("parallel")
    return parallel.get("pp", 1) if isinstance(parallel, Mapping) else 1


def _word(value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, numbers.Real):  # includes NumPy's
        return str(value)
    raise TypeError(f"an option cannot be {value!r}")


class Parameters(Mapping[str, "NDArray[np.float32]"]):
    """A run's parameters by name, as the optimizer updates them, in float32.

    parameters[name] is a view of the parameter itself: the next step starts from what is written
    there, which must be the same on all ranks. Two kinds are read-only copies:

    - in 16 bits (precision="bf16" or "f16") the float32 values that are kept beside the model's;
    - with zero=3, and with zero=1 or 2 in 16 bits, values that the ranks assemble together: all of
      them must ask for the same parameter.

    parameters[name] = values changes a parameter of any kind; all ranks must pass the same values.
    In a pipeline each rank has the parameters of its own stage.
    """

    def __init__(self, run: _training.Run) -> None:
        self._run = run

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._run.read(name)

    def __setitem__(self, name: str, values: ArrayLike) -> None:
        shape = tuple(self._run.shape(name))
        given = np.broadcast_to(np.asarray(values, np.float32), shape)
        self._run.write(name, np.ascontiguousarray(given))

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.parameters)

    def __len__(self) -> int:
        return len(self._run.parameters)


# Open runs. Those still open when Python exits are closed, which ends their threads.
_open: weakref.WeakSet[Run] = weakref.WeakSet()


class Run(Iterator[Step]):
    """A training run, on every rank of a job.

    Takes the options of `tutti train` (`tutti train --help`), written with underscores:
    layers=2, weight_decay=0.1, data=["a.txt", "b.txt"], resume=True. The same code parses them, so
    defaults and errors are the same. The program's own options --ranks, --json, --csv,
    --tensorboard, --plot and --profile are not available. `config` is a file for --config, or its
    content as a mapping: {"model": {"kind": "gpt2", "layers": 2}, "optimizer": {"lr": 0.001}};
    options override it.

    The run uses the ranks of `communicator`. By default it joins the job as tutti.init() does,
    under `python -m tutti.run -n 4`, torchrun or srun; without a launcher there is one rank. All
    ranks must make the same calls with the same options. They get the same losses, bit for bit, so
    decisions based on them agree.

    Each iteration performs one step. After the last one the run is saved, if it has a directory
    (`checkpoint`), and validated: `result` is the last record of `tutti train --json`. A `with`
    block that is left earlier, for example by `break`, saves the last step; one left by an
    exception does not.

    Errors are raised as tutti.Error. Interrupts are handled between steps, and while this rank
    waits for others: then the communicator is aborted.
    """

    result: dict[str, Any] | None = None  # set once the run has ended

    def __init__(
        self,
        communicator: Communicator | None = None,
        *,
        config: Mapping[str, Any] | _Word | None = None,
        **options: Option,
    ) -> None:
        words, told = _words(options), "{}"
        if isinstance(config, Mapping):
            told = json.dumps(config, allow_nan=False)
        elif config is not None:
            words.append(f"--config={_word(config)}")
        self._owned: Communicator | None = None
        if communicator is None:
            if str(options.get("pp", _pipeline_of(config))) != "1":
                # A stage's messages must travel while it computes the next micro-batch.
                os.environ.setdefault("TUTTI_PROGRESS_THREAD", "1")
            communicator = self._owned = init()
        self.communicator = communicator
        try:
            self._run = _training.Run(communicator._handle.capsule, words, told)
        except BaseException as error:
            if self._owned is not None:
                self._owned.__exit__(type(error), error, None)
            raise
        self._failed = False
        self.parameters = Parameters(self._run)
        _open.add(self)

    def __repr__(self) -> str:
        try:
            return f"<tutti.training.Run: step {self.step} of {self.steps}, {self.model}>"
        except Error:
            return "<tutti.training.Run: closed>"

    @property
    def model(self) -> str:
        """The model's kind and sizes."""
        return self._run.model

    @property
    def configuration(self) -> dict[str, Any]:
        """The complete configuration, derived values included: passed as `config`, it reproduces
        the run."""
        return dict(json.loads(self._run.configuration))

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self._run.steps

    @property
    def step(self) -> int:
        """The last completed step; at first 0, or the step that was resumed."""
        return self._run.step

    def __next__(self) -> Step:
        try:
            line = self._run.next()
        except BaseException:
            self._failed = True
            raise
        if line is None:
            self._finish()
            raise StopIteration
        return Step(**json.loads(line))

    def evaluate(self) -> Evaluation:
        """Evaluates the model on held-out data. Collective; blocks."""
        return Evaluation(*self._run.evaluate())

    def save(self) -> None:
        """Saves the last step in the run's directory, unless it is already there. Collective;
        blocks."""
        self._run.save()

    def sample(
        self,
        prompt: str = "\n",
        *,
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        tokenizer: str | os.PathLike[str] = "",
        ignore_eos: bool = False,
    ) -> str:
        """Returns the prompt and the text that a language model generates after it, as `tutti
        sample`. A single rank may call, if it holds all parameters: not in a pipeline, nor with
        zero=3."""
        text = self._run.sample(
            prompt, tokens, temperature, top_k, top_p, seed, os.fspath(tokenizer), ignore_eos
        )
        return text.decode(errors="replace")

    def close(self) -> None:
        """Ends the run without saving, and leaves the job if the run joined it. Arrays of
        parameters stay valid. May be repeated."""
        self._run.close()
        _open.discard(self)
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Saves the last step, unless an exception ended the block, and closes the run."""
        try:
            if error is not None:
                self._abort(error)
            elif not self._failed:
                self._finish()
        except BaseException as failure:
            self._abort(failure)
            raise
        finally:
            self.close()

    def _finish(self) -> None:
        if self.result is None:
            self._failed = True  # unless the call returns
            self.result = json.loads(self._run.finish())
            self._failed = False

    def _abort(self, error: BaseException) -> None:
        """Aborts the communicator, so that the other ranks do not wait for this one, if the run
        joined the job itself."""
        if self._owned is not None:
            with contextlib.suppress(Error):  # the run is closed
                self._owned.abort(f"rank {self._owned.rank} raised {error!r}")


@atexit.register
def _close_all() -> None:
    for run in list(_open):
        run.close()
