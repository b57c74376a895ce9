"""What goes wrong is an exception that says what and whose, and never a crash or a hang."""

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from jobs import SECONDS, on_ranks, run_job, start_job

import tutti
from tutti import ErrorCode


def error_of(call, *arguments, **options):
    with pytest.raises(tutti.Error) as caught:
        call(*arguments, **options)
    return caught.value


@pytest.fixture(scope="module")
def alone():
    with tutti.init() as world:
        yield world


def test_arguments_are_checked(alone):
    x = np.ones((4, 4))
    frozen = np.ones(16)
    frozen.flags.writeable = False
    for words, call in {
        "ascontiguousarray": lambda: alone.all_reduce(x[:, :2]),
        "bfloat16) is not contiguous": lambda: alone.all_reduce(
            np.ones(9, ml_dtypes.bfloat16)[::2]
        ),
        "Receive into a contiguous": lambda: alone.all_reduce(x, out=x.T),
        "of a type that": lambda: alone.all_reduce(x > 0),
        "not an array": lambda: alone.all_reduce(object()),
        "expected one of sum,": lambda: alone.all_reduce(x, "plus"),
        "read-only": lambda: alone.all_reduce(np.ones(16), out=frozen),
        "16 elements, not 17": lambda: alone.all_reduce(x, out=np.ones(17)),
        "f64": lambda: alone.all_reduce(x, out=np.ones(16, "f4")),
        "root": lambda: alone.broadcast(x, 3),
        "2 counts": lambda: alone.reduce_scatter(x, counts=[1, 3]),
        "negative": lambda: alone.all_gather(x, counts=[-4], out=x),
        "input_counts and output_counts, or neither": lambda: alone.all_to_all(x, input_counts=[4]),
    }.items():
        error = error_of(call)
        assert error.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.UNSUPPORTED), words
        assert words in str(error)
        assert error.rank is None
    assert alone.all_reduce(1) == 1  # it can still be used


def test_errors_are_values(alone):
    error = error_of(alone.broadcast, np.ones(3), 5)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.rank, str(copy)) == (error.code, error.rank, str(error))
    assert isinstance(error, RuntimeError)


def test_init_says_what_is_wrong():
    assert error_of(tutti.init, 1).code == ErrorCode.INVALID_ARGUMENT
    assert "out of range" in str(error_of(tutti.init, 3, 2))
    assert error_of(tutti.init, 0, -1).code == ErrorCode.INVALID_ARGUMENT


def test_nothing_works_after_close():
    world = tutti.init()
    world.close()
    world.close()
    for call in (
        world.barrier,
        world.split,
        lambda: world.all_reduce(1),
        lambda: world.abort("why"),
    ):
        with pytest.raises((tutti.Error, TypeError)):
            call()
    assert "closed" in repr(world)


def test_an_array_that_closes_the_communicator():
    """Taking an array runs its code, which may do anything."""
    world = tutti.init()

    class Spiteful:
        shape = (3,)

        def __dlpack__(self, **options):
            world.close()
            return np.ones(3).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    assert "closed" in str(error_of(world.all_reduce, Spiteful(), out=np.ones(3)))


@on_ranks(3)
def test_calls_that_do_not_fit(world):
    part = world.split(0)
    error = error_of(part.all_reduce, np.ones(3 if world.rank < 2 else 4))
    assert error.code == ErrorCode.MISMATCH and "rank 2" in str(error)
    again = error_of(part.barrier)
    assert again.code == ErrorCode.MISMATCH
    world.barrier()


@on_ranks(3)
def test_the_living_agree_and_shrink(world):
    assert world.agree(6 if world.rank == 0 else 12) == (4, [0, 1, 2])
    left = world.shrink()
    assert (left.rank, left.size) == (world.rank, world.size)
    assert left.all_reduce(1) == 3


def test_survivors_go_on():
    program = """
import os, signal, tutti
world = tutti.init()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        world.all_reduce(1)
except tutti.Error as error:
    assert error.code == tutti.ErrorCode.RANK_DIED and error.rank == 1, error
left = world.shrink()
print(left.rank, "of", left.size, left.all_reduce(1))
"""
    command = ["-m", "tutti.run", "-n", "3", "--min-ranks", "2", "--no-prefix", "--"]
    job = subprocess.run(
        [sys.executable, *command, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["0 of 2 2", "1 of 2 2"], job.stdout


@on_ranks(2)
def test_an_exception_in_a_with_block_is_told(world):
    part = world.split(0)
    if world.rank == 0:
        with pytest.raises(ZeroDivisionError), part:
            1 / 0
    else:
        error = error_of(part.barrier)
        assert error.code == ErrorCode.ABORTED and "rank 0 raised ZeroDivisionError" in str(error)


@on_ranks(2)
def test_a_deadline(world):
    part = world.split(0)
    if world.rank == 0:
        error = error_of(part.barrier, timeout=0.2)
        assert error.code == ErrorCode.TIMEOUT
    world.barrier()


WAITING = """
import os
os.environ["TUTTI_TIMEOUT"] = "0.1"
import numpy as np, tutti
with tutti.init() as world:
    x = np.zeros(1)
    work = world.recv_async(x, 0, timeout=0)
    assert not work.wait_for(0.4)
    world.send(np.ones(1), 0)
    work.wait()
    assert x[0] == 1
"""


def test_a_timeout_of_zero_is_no_deadline():
    subprocess.run([sys.executable, "-c", WAITING], check=True, timeout=SECONDS)


KILLED = """
import os, signal, time, numpy as np, tutti
world = tutti.init()
for step in range(10**9):
    if world.rank == 1 and step == 100:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        world.all_reduce(np.ones(1000))
    except tutti.Error as error:
        # Written at once, because the ranks write to the same pipe.
        print(f"{world.rank} {error.code.name} {error.rank} {error}\\n", end="", flush=True)
        break
"""


def test_a_killed_rank_is_named():
    job = run_job(3, "-c", KILLED, check=False)
    assert job.returncode == 128 + signal.SIGKILL
    for rank in (0, 2):
        assert f"{rank} RANK_DIED 1 rank 1 (" in job.stdout, job.stdout + job.stderr
    assert "signal 9" in job.stdout


LEFT = """
import numpy as np, tutti
world = tutti.init()
kept = world.recv_async(np.empty(5), tag=1)
world.barrier()
{last}
"""


@pytest.mark.parametrize(
    "last, code",
    [
        ("", 0),
        ("1 / 0", 1),
        ("import sys; sys.exit(3 if world.rank == 0 else 0)", 3),
        (
            "import asyncio; asyncio.run(asyncio.wait_for(world.split(0).recv_async(np.empty(1)), 0.01))",
            1,
        ),
        ("import threading; threading.Thread(target=kept.wait, daemon=True).start()", 0),
        ("import os, sys; child = os.fork(); child and os.waitpid(child, 0); sys.exit(0)", 0),
        (
            "import multiprocessing as m; p = m.get_context('fork').Process(target=print); p.start(); p.join()",
            0,
        ),
        ("import atexit; atexit.register(lambda: world.all_reduce(1))", 0),
        ("import sys; sys.stderr.close(); del tutti, world, kept", 0),
    ],
)
def test_a_process_ends_without_closing(last, code):
    """With calls under way, and threads that wait for them."""
    job = run_job(2, "-c", LEFT.format(last=last), check=False)
    assert job.returncode == code, job.stdout + job.stderr
    assert "terminate" not in job.stderr


def test_an_exception_on_one_rank_ends_the_job():
    program = """
import numpy as np, tutti
world = tutti.init()
if world.rank == 0: 1 / 0
world.recv(np.empty(1), 0)
"""
    job = run_job(2, "-c", program, check=False)
    assert job.returncode != 0
    assert "ZeroDivisionError" in job.stderr


INTERRUPTED = """
import numpy as np, tutti
world = tutti.init()
try:
    print("ready", flush=True)
    {call}
except KeyboardInterrupt:
    {after}
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "call, after",
    [
        ("world.recv(np.empty(3), 0)", "world.close()"),
        ("world.recv_async(np.empty(3), 0).wait()", "assert world.all_reduce(1) == 1"),
        ("world.probe(0, 1)", "pass"),
    ],
)
def test_an_interrupt_is_heard(call, after):
    job = start_job(1, "-c", INTERRUPTED.format(call=call, after=after))
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    output, errors = job.communicate(timeout=SECONDS)
    assert output == "interrupted\n", errors


def test_an_interrupt_is_heard_while_ranks_join(tmp_path):
    program = f"""
import sys, threading, signal, os, tutti
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    tutti.init(0, 2, rendezvous_file={str(tmp_path / "meet")!r})
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(7)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS
    )
    assert (process.returncode, process.stdout) == (7, "interrupted\n"), process.stderr


def test_close_ends_a_probe(alone):
    part = alone.create([0], tag=99)
    caught = []

    def probe():
        started.set()
        caught.append(error_of(part.probe).code)

    started = threading.Event()
    thread = threading.Thread(target=probe)
    thread.start()
    started.wait()
    part.close()
    thread.join()
    # The call had started, or came later.
    assert caught[0] in (ErrorCode.ABORTED, ErrorCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("wait", ["probe", "recv"])
def test_a_handler_that_closes(wait):
    """Whatever comes first, the signal or the wait: an error, and no hang."""
    program = f"""
import signal, numpy as np, tutti
world = tutti.init()
signal.signal(signal.SIGALRM, lambda *_: world.close())
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    world.{wait}({"" if wait == "probe" else "np.empty(1)"})
except tutti.Error as error:
    print(error.code.name)
"""
    assert run_job(1, "-c", program).stdout == "INVALID_ARGUMENT\n"


def test_a_child_must_not_call(alone):
    child = os.fork()
    if child == 0:
        try:
            alone.barrier()
        except tutti.Error as error:
            alone.close()
            os._exit(0 if error.code == ErrorCode.UNSUPPORTED else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert alone.all_reduce(1) == 1


def test_misuse_at_random(alone):
    """Whatever is passed, the answer is a result or an exception."""
    seed = int(os.environ.get("RANDOM_SEED", random.randrange(1 << 32)))
    print("RANDOM_SEED", seed)
    choose = random.Random(seed).choice
    arrays = [
        np.ones(4), np.ones((2, 2)).T, np.ones(0), np.ones(()), np.ones(4, "i1"), np.ones(4, "c16"), np.ones(4)[::-1],
        np.array(["a"]), np.array([None]), None, 3, "text", b"bytes", [1, [2]], {}, float("nan"), np.ones((2, 3, 4)),
        bytearray(8), memoryview(b"12"), np.float32, lambda: 1, np.ones(3, ">f4"), np.ma.ones(3), np.array(5)[()],
    ]  # fmt: skip
    small = [-(2**70), -5, -1, 0, 1, 2, 2**31, 2**64, None, 1.5, "x"]
    counts = [None, [], [1], [4], [-1], [2**65], [1, 2], "ab", 3, np.array([4]), [None]]
    names = [name for name in dir(alone) if name.split("_async")[0] in (
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "scan", "exscan", "broadcast", "reduce", "gather",
        "scatter")]  # fmt: skip
    rejected = done = 0
    for _ in range(20000):
        options = {}
        for key, values in {
            "out": arrays, "op": ["sum", "max", "band", "minloc", "", None, 3], "root": small, "counts": counts,
            "input_counts": counts, "output_counts": counts, "timeout": small, "algorithm": ["ring", "none", 5, ""],
            "deterministic": [True, "yes"],
        }.items():  # fmt: skip
            if choose(range(6)) == 0:
                options[key] = choose(values)
        try:
            result = getattr(alone, choose(names))(choose(arrays), **options)
            if isinstance(result, tutti.Work):
                result.wait()
            done += 1
        except (tutti.Error, TypeError, ValueError, OverflowError, AttributeError) as error:
            assert not isinstance(error, tutti.Error) or error.code in (
                ErrorCode.INVALID_ARGUMENT, ErrorCode.UNSUPPORTED), error  # fmt: skip
            rejected += 1
    assert done > 100 and rejected > 100
    assert alone.all_reduce(1) == 1


def test_random_works_are_used_by_threads(alone):
    """Threads that make communicators, start, test, wait and drop at once."""

    def use(seed):
        pick = random.Random(seed)
        for _ in range(300):
            with alone.create([0], tag=seed) as part:
                work = part.recv_async(np.empty(3), tag=1)
                part.send(np.ones(3), 0, 1)
                pick.choice([work.test, work.wait, lambda: None])()

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone.all_reduce(1) == 1


@on_ranks(2)
def test_calls_end_when_threads_abort_and_close(world):
    """As watchdogs do, while other threads make calls and wait."""
    for _ in range(10):
        part = world.split(0)
        world.barrier()  # all have it
        codes = []

        def until_it_fails(call, codes=codes):
            try:
                while True:
                    call()
            except tutti.Error as error:
                codes.append(error.code)

        def end(call):
            with contextlib.suppress(tutti.Error):  # it is closed already
                call()

        calls = [
            lambda part=part: part.all_reduce(1),
            lambda part=part: part.recv(np.empty(3), tag=1),
            lambda part=part: part.recv_async(np.empty(3), tag=2).wait_for(0.01),
            lambda part=part: part.probe(tag=3),
            lambda part=part: part.create([world.rank], tag=world.rank),
        ]
        ends = [lambda part=part: part.abort("watchdog"), part.close]
        threads = [threading.Thread(target=until_it_fails, args=(call,)) for call in calls]
        threads += [threading.Thread(target=end, args=(call,)) for call in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(codes) == len(calls)
        assert set(codes) <= {ErrorCode.ABORTED, ErrorCode.INVALID_ARGUMENT}, codes
    assert world.all_reduce(1) == world.size
