"""tutti.training trains as `tutti train` does, and its parameters are what is trained."""

import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from jobs import SECONDS, run_job, start_job

import tutti
from tutti import ErrorCode, run, training

SIZES = {"model": "gpt2", "layers": 1, "width": 32, "heads": 2, "context": 16}
OPTIONS = {**SIZES, "steps": 6, "batch": 8, "micro_batch": 2, "validation_samples": 64}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    lines = (f"line {i} says {i * i % 97}, and {'ha' * (i % 3)}\n" for i in range(3000))
    path.write_text("".join(lines))
    return str(path)


def words(options):
    named = {"--" + name.replace("_", "-"): value for name, value in options.items()}
    return [name if value is True else f"{name}={value}" for name, value in named.items()]


def command_line(*arguments):
    """What the program itself says, without a launcher around it."""
    return subprocess.run(
        [run.TUTTI, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
    )


def lines_of_train(tmp_path, text, ranks, **options):
    path = tmp_path / f"{ranks}.jsonl"
    job = command_line(
        "train", f"--data={text}", f"--ranks={ranks}", f"--json={path}", *words(options)
    )
    assert job.returncode == 0, job.stderr
    return [json.loads(line) for line in path.read_text().splitlines()]


STEPS = """
import json, sys
from tutti import training
with training.Run(**json.loads(sys.argv[1])) as run:
    steps = [[step.step, step.loss, step.grad_norm, step.lr] for step in run]
    if run.communicator.rank == 0:
        print(json.dumps([steps, run.result["validation_loss"], run.result["ranks"]]))
"""


@pytest.mark.parametrize(
    "ranks, more",
    [
        (1, {}),
        (1, {"precision": "bf16"}),
        (2, {}),
        (2, {"zero": 1, "precision": "bf16", "optimizer": "lamb"}),
        (2, {"zero": 3}),
        (2, {"pp": 2, "schedule": "1f1b"}),
        (2, {"pp": 2, "schedule": "pipedream-2bw", "flush_every": 4, "untied": True}),
    ],
)
def test_steps_are_those_of_the_command_line(tmp_path, text, ranks, more):
    options = {**OPTIONS, **more}
    wanted = lines_of_train(tmp_path, text, ranks, **options)
    job = run_job(ranks, "-c", STEPS, json.dumps({"data": text, **options}))
    steps, validation, size = json.loads(job.stdout)
    keys = ("step", "loss", "grad_norm", "lr")
    assert steps == [[line[key] for key in keys] for line in wanted[:-1]]
    assert len(steps) == OPTIONS["steps"]
    assert (validation, size) == (wanted[-1]["validation_loss"], ranks)


def test_a_step_has_the_fields_of_the_json(tmp_path, text):
    lines = lines_of_train(tmp_path, text, 1, validate_every=2, **OPTIONS)
    with training.Run(data=text, validate_every=2, **OPTIONS) as run:
        steps = list(run)
    assert lines[1].keys() <= training.Step.__dataclass_fields__.keys()
    assert steps[1].validation_loss == lines[1]["validation_loss"]
    assert steps[0].validation_loss is None and steps[0].overflow is None
    assert run.result.keys() == lines[-1].keys()


def exported(tmp_path, checkpoint):
    """The parameters of a checkpoint, by another program's format."""
    path = tmp_path / "model.safetensors"
    assert command_line("checkpoint", str(checkpoint), f"--export={path}").returncode == 0
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:end])
    tensors.pop("__metadata__", None)
    found = {}
    for name, tensor in tensors.items():
        assert tensor["dtype"] == "F32"
        begin, stop = tensor["data_offsets"]
        values = np.frombuffer(data[end + begin : end + stop], np.float32)
        found[name] = values.reshape(tensor["shape"])
    return found


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_parameters_are_those_of_the_checkpoint(tmp_path, text, precision):
    directory = tmp_path / "run"
    with training.Run(data=text, checkpoint=directory, precision=precision, **OPTIONS) as run:
        next(run)
        run.save()
        run.save()  # nothing is left to do
        values = {name: array.copy() for name, array in run.parameters.items()}
        assert len(run.parameters) == len(values) > 10
        assert "wte.weight" in run.parameters and "other" not in run.parameters
        wanted = exported(tmp_path, directory)
        assert values.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(values[name], array)
        assert run.parameters["wte.weight"].flags.writeable == (precision == "f32")
    assert run.result["stopped_at"] == 1


PARAMETERS = """
import json, sys, hashlib
import numpy as np
from tutti import training
options = json.loads(sys.argv[1])
with training.Run(**options) as run:
    digest, losses = hashlib.sha256(), []
    for step in run:
        losses.append(step.loss)
        if step.step == 2:
            for name in run.parameters:
                run.parameters[name] = run.parameters[name] * np.float32(-4)
                digest.update(run.parameters[name].tobytes())
            run.parameters["ln_f.bias"] = 0.25
            assert (run.parameters["ln_f.bias"] == 0.25).all()
    print(json.dumps([losses, digest.hexdigest()]) + "\\n", end="", flush=True)
"""


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_written_parameters_are_trained_in_every_layout(text, precision, monkeypatch):
    """The same losses after the same change, wherever the parameters lie."""
    monkeypatch.setenv("TUTTI_DETERMINISTIC", "1")  # the same bits, in every layout
    options = {"data": text, "precision": precision, **OPTIONS}
    told = set()
    for more in ({}, {"zero": 1}, {"zero": 2}, {"zero": 3}):
        job = run_job(2, "-c", PARAMETERS, json.dumps({**options, **more}))
        lines = job.stdout.splitlines()
        assert len(lines) == 2
        told.update(lines)
    assert len(told) == 1, told
    losses = json.loads(told.pop())[0]
    untouched = [step.loss for step in training.Run(**options)]
    assert losses[:2] == pytest.approx(untouched[:2], rel=1e-2)
    assert losses[2] != pytest.approx(untouched[2], rel=1e-2)


def test_views_are_the_parameters(text):
    """Written in place, or by assignment: the same next loss. Views outlive the run."""
    after = []
    for in_place in (True, False):
        with training.Run(data=text, **OPTIONS) as run:
            next(run)
            view = run.parameters["ln_f.weight"]
            if in_place:
                view *= 2
            else:
                run.parameters["ln_f.weight"] = view * np.float32(2)
            assert np.shares_memory(view, run.parameters["ln_f.weight"])
            before = view.copy()
            after.append(next(run).loss)
            assert (view != before).any()
            kept = view.copy()
        assert (view == kept).all()
    assert after[0] == after[1]


@pytest.mark.parametrize("broken_off", [False, True])
def test_a_run_is_resumed(tmp_path, text, broken_off):
    options = {"data": text, "checkpoint": tmp_path / "run", **OPTIONS}
    wanted = [step.loss for step in training.Run(data=text, **OPTIONS)]
    losses = []
    with training.Run(**options) as run:
        for step in run:
            losses.append(step.loss)
            if step.step == 3:
                if not broken_off:
                    run.save()
                break
    with training.Run(resume=True, **options) as run:
        assert (run.step, run.steps) == (3, 6)
        losses += [step.loss for step in run]
    assert losses == wanted


def test_an_exception_saves_nothing(tmp_path, text):
    options = {"data": text, "checkpoint": tmp_path / "run", **OPTIONS}
    with pytest.raises(ZeroDivisionError), training.Run(**options) as run:
        next(run)
        1 / 0
    with pytest.raises(tutti.Error, match="closed"):
        next(run)
    with training.Run(resume="auto", **options) as run:
        assert run.step == 0


def test_a_run_on_a_communicator_of_the_callers(text):
    with tutti.init() as world:
        with training.Run(world, data=text, **OPTIONS) as run:
            losses = [step.loss for step in run]
        assert world.all_reduce(1) == 1
        with training.Run(world, data=text, **OPTIONS) as run:
            assert run.communicator is world
            assert [step.loss for step in run] == losses


def test_evaluate_and_sample(text):
    with training.Run(data=text, **OPTIONS) as run:
        list(run)
        evaluation = run.evaluate()
        assert evaluation.loss == run.result["validation_loss"]
        assert evaluation.targets == run.result["validation_samples"] == 64 * 16
        assert run.sample("line ", tokens=0) == "line "
        written = run.sample("line ", tokens=9, seed=3)
        assert written.startswith("line ") and len(written.encode(errors="replace")) >= 14
        assert run.sample("line ", tokens=9, seed=3) == written
        with pytest.raises(tutti.Error, match="cannot generate"):
            run.sample("", tokens=9)


def test_a_configuration_is_what_options_are(text):
    told = {"model": {"kind": "gpt2", "layers": 1, "heads": 2, "width": 16, "context": 8},
            "data": {"files": [str(text)]},
            "training": {"steps": 3, "batch": 4, "micro_batch": 2},
            "optimizer": {"name": "muon", "lr": 0.01}}  # fmt: skip
    with training.Run(config=told, warmup=1) as run:
        losses = [step.loss for step in run]
        whole = run.configuration
    assert len(losses) == 3
    assert whole["optimizer"]["warmup"] == 1 and whole["optimizer"]["momentum"] == 0.95
    with training.Run(config=whole) as run:
        assert [step.loss for step in run] == losses
    with pytest.raises(tutti.Error, match="did you mean model.layers"):
        training.Run(config={"model": {"kind": "gpt2", "layrs": 1}}, data=text)
    with pytest.raises(tutti.Error, match="optimizer.lr: expected a number"):
        training.Run(config={"optimizer": {"lr": "fast"}}, data=text)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"laers": 2}, "unknown option --laers"),
        ({"layers": "two"}, "expected a number"),
        ({"zero": 4}, "from 0 to 3"),
        ({"precision": "f64"}, "--precision"),
        ({"momentum": 0.5}, "--momentum has no effect without --optimizer sgd, lars or muon"),
        ({"embedding": 3}, "--embedding has no effect without --model mlp"),
        ({"batch": 4, "micro_batches": 2}, "both --batch and --micro-batches"),
        ({"resume": True}, "--resume requires a checkpoint"),
        ({"steps": 0}, "cannot be 0"),
        ({"data": "/absent"}, "cannot read the text"),
        ({"data": None}, "--data is required"),
        ({"json": "file"}, "unknown option --json"),
        ({"help": True}, "--help"),
        ({"dp": 2}, "1 rank does not form a mesh"),
        ({"untied": "maybe"}, "--untied"),
        ({"untied": 2**70}, "--untied"),
    ],
)
def test_options_are_checked_as_on_the_command_line(text, wrong, said):
    options = {"data": text, **OPTIONS, **wrong}
    if "micro_batches" in wrong:
        del options["micro_batch"]
    with pytest.raises(tutti.Error) as caught:
        training.Run(**options)
    assert said in str(caught.value)
    given = {name: value for name, value in options.items() if value is not None}
    if not wrong.keys() & {"json", "help", "resume", "dp"}:
        said_there = command_line("train", "--ranks=1", *words(given)).stderr
        assert said_there.startswith(f"tutti: {caught.value}")


def test_values_of_options(text, tmp_path):
    """What Python has for words and numbers."""
    folder = tmp_path / "run"
    options = {**OPTIONS, "data": [text], "batch": np.int64(8), "checkpoint": folder}
    with training.Run(**options, lr=np.float64(1e-5), warmup=2, resume=False, untied=None) as run:
        assert [next(run).lr for _ in range(2)] == [5e-6, 1e-5]
    assert folder.is_dir()
    for wrong in (b"bytes", object(), [[1]], np.ones(2)):
        with pytest.raises(TypeError, match="an option cannot be"):
            training.Run(data=text, steps=wrong)


def test_mistakes_between_steps(text):
    with training.Run(data=text, **OPTIONS) as run:
        with pytest.raises(KeyError):
            run.parameters["absent"]
        with pytest.raises(KeyError):
            run.parameters["absent"] = 0
        with pytest.raises(ValueError, match="broadcast"):
            run.parameters["ln_f.bias"] = np.ones(5)
        with pytest.raises(tutti.Error, match="no checkpoint directory") as caught:
            run.save()
        assert caught.value.code == ErrorCode.INVALID_ARGUMENT
        assert next(run).step == 1  # it goes on


def test_misuse_at_random(text):
    """Whatever is passed, the answer is a run, a result, or an exception."""
    seed = int(os.environ.get("RANDOM_SEED", random.randrange(1 << 32)))
    print("RANDOM_SEED", seed)
    choose = random.Random(seed).choice
    values = [
        0, 1, -1, 2, 2**70, 0.5, -0.1, float("nan"), float("inf"), "", "x", "a,b", "1", "auto",
        "\0", "ü", "--data", True, False, None, [], [1, 2], ["x", 3], [[1]], (), b"bytes",
        object(), np.float32(0.5), np.ones(3), {1: 2}, len, "/",
    ]  # fmt: skip
    names = [
        "steps", "epochs", "batch", "micro_batch", "seed", "workers", "model", "context", "layers",
        "hidden", "ffn_hidden_size", "heads", "width", "optimizer", "lr", "lr_schedule", "warmup", "beta1", "clip",
        "dp", "pp", "schedule", "zero", "precision", "recompute", "loss_scale", "bucket_mb",
        "compression", "cut", "validate_every", "resume", "keep", "untied", "dropout", "norm",
        "data_weights", "allow_changed", "initial", "", "a-b", "help", "version",
    ]  # fmt: skip
    mistakes = (tutti.Error, TypeError, ValueError)
    made = refused = 0
    with tutti.init() as world:
        for _ in range(500):
            small = {"data": text, "steps": 2, "batch": 2, "hidden": 8, "vocabulary": 256}
            for _ in range(choose((1, 1, 1, 2, 3))):
                small[choose(names)] = choose(values)
            try:
                with training.Run(world, **small) as run:
                    made += 1
                    name = choose([*run.parameters, "absent", 3, None])
                    try:
                        run.parameters[name] = choose(values)
                        run.sample(choose(values), tokens=choose(values[:8]), seed=choose(values))
                    except (*mistakes, KeyError, OverflowError):
                        pass
                    if run.steps <= 2 and small.get("batch") == 2:
                        run.evaluate()
            except mistakes:
                refused += 1
        assert world.all_reduce(1) == 1
    assert made > 20 and refused > 100


ONE_SIDED = """
import sys, tutti
from tutti import training
with tutti.init() as world:
    data = sys.argv[1] if world.rank == 0 else "/absent"
    try:
        training.Run(world, data=data, steps=2)
    except tutti.Error as error:
        print(f"{world.rank} {error.code.name} {error}\\n", end="", flush=True)
    try:
        training.Run(world, data=sys.argv[1], steps=2 + world.rank)
    except tutti.Error as error:
        print(f"{world.rank} {error.code.name} {error}\\n", end="", flush=True)
    assert world.all_reduce(1) == 2
"""


def test_what_one_rank_cannot_read_is_an_error_on_all(text):
    job = run_job(2, "-c", ONE_SIDED, text)
    for rank in (0, 1):
        assert f"{rank} SYSTEM cannot read the text" in job.stdout, job.stdout
        assert f"{rank} MISMATCH the ranks do not train the same model" in job.stdout, job.stdout
    assert "rank 1 (" in job.stdout


KILLED = """
import os, signal, sys, tutti
from tutti import training
with tutti.init() as world:
    run = training.Run(world, data=sys.argv[1], steps=10**6, batch=64)
    try:
        for step in run:
            if world.rank == 1 and step.step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
    except tutti.Error as error:
        print(error.code.name, error.rank, error, flush=True)
        sys.exit(1)
"""


def test_a_killed_rank_is_named(text):
    job = run_job(2, "-c", KILLED, text, check=False)
    assert job.returncode == 128 + signal.SIGKILL
    assert job.stdout.startswith("RANK_DIED 1 rank 1 ("), job.stdout + job.stderr
    assert "signal 9" in job.stdout


INTERRUPTED = """
import os, signal, sys
from tutti import training
with training.Run(data=sys.argv[1], steps=10**6, batch=64) as run:
    first = run.communicator.rank == 0
    for step in run:
        if step.step == 3 and first:
            print(os.getpid(), flush=True)
        if step.step == 3 and not first:
            run.communicator.probe()  # the first rank waits for this one
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupt_is_heard(text, ranks):
    """In steps alone, or while a rank waits for another one that does not come."""
    job = start_job(ranks, "-c", INTERRUPTED, text)
    os.kill(int(job.stdout.readline()), signal.SIGINT)
    _, errors = job.communicate(timeout=SECONDS)
    assert "\nKeyboardInterrupt\n" in errors and job.returncode != 0


ENDLESS = """
import sys
from tutti import training
with training.Run(data=sys.argv[1], steps=10**6, batch=64, zero=1) as run:
    for step in run:
        if step.step == 3 and run.communicator.rank == 0:
            print("ready", flush=True)
"""


def test_an_interrupt_of_the_whole_job_is_one_on_each_rank(text):
    """Whether a rank hears its own or that another one has aborted first."""
    job = start_job(2, "-c", ENDLESS, text)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=SECONDS)
    # The ranks write to one pipe, so lines may be mixed.
    assert errors.count("KeyboardInterrupt") == 2 and "Error" not in errors, errors
    assert job.returncode != 0


LEFT = """
import sys
from tutti import training
run = training.Run(data=sys.argv[1], steps=100)
next(run)
view = run.parameters["0.weight" if "0.weight" in run.parameters else list(run.parameters)[0]]
{last}
"""


@pytest.mark.parametrize("last", ["", "del run", "import os; os.fork() or os._exit(0); os.wait()"])
def test_a_process_ends_without_closing(text, last):
    job = run_job(2, "-c", LEFT.format(last=last), text, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    assert job.stderr == ""


def test_there_is_one_communicator_in_a_process():
    """The extension takes it from the library that _tutti uses, and has none of its own."""

    def symbols(*arguments):
        command = ["nm", "-C", *arguments, training._training.__file__]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "U tutti::Communicator::rank() const" in symbols("-D", "--undefined-only")
    own = symbols("--defined-only")
    assert "tutti::training::Trainer::next()" in own
    for other in ("tutti::Communicator::init()", "tutti::internal::CommunicatorImpl::"):
        assert other not in own


def test_the_package_is_light():
    program = "import sys, tutti; assert 'tutti._training' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SECONDS)
