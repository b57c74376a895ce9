"""Facts about data, precision of updates and what lies beyond the course."""
import re

from fact import Fact, Figure, same_losses

DATA = "Data"
BEYOND = "Beyond"
MIX = "tutti data 410B 19B 12B 55B 3B --data-weights 60 22 8 8 3 --tokens 300B"


def epochs(size, want, within=0.02):
    return Figure(f"epochs of {size}", MIX, lambda out: out.number(rf"^{size} .* ([\d.]+)$"), want=want, within=within)


SHAPES = ("tutti train --data shapes:96x96 --model resnet --widths 8 --blocks 1 --batch 16 --micro-batch 16 --steps 80 -n 1 "
          "--validation-samples 16 --json run.jsonl")


def waiting_share(out):
    lines = out.lines("run.jsonl")
    waited = sum(worker["waited_for_data_s"] for worker in lines[-1]["workers"])
    return waited / [line["elapsed_s"] for line in lines if "loss" in line][-1]


def waits(workers, what, least, most):
    return Figure(f"share of the time waiting for images that are made, {what}", f"{SHAPES} --workers {workers}", waiting_share,
                  least=least, most=most, small=workers == 0)


def digest(algorithm, ranks=5):
    return (f"tutti bench all_reduce -n {ranks} --digest --min 4096 --max 4096 --iterations 2 --algorithm {algorithm} "
            f"--json {algorithm}.json")


CANONICAL = ("naive", "parameter_server", "two_shot", "recursive_doubling", "halving_doubling", "knomial_4")


ALGORITHMS = "tutti bench all_reduce -n 2 --algorithm list"


def digests(out):
    return len({out.json(f"{name}.json")["results"][0]["digest"] for name in CANONICAL})


CALLS = "tutti bench all_reduce --max 8 --iterations 2"
# Commands that must fail. Facts read what they print.
DEATH = f"! tutti run -n 3 -- bash -c 'if [ $RANK = 1 ]; then kill -9 $$; fi; {CALLS}'"
STALL = "! TUTTI_TIMEOUT=2 TUTTI_FAULT=stall:1:20 tutti bench all_reduce -n 2 --max 1K"
# The rank is stopped once it has joined; the launcher ends it when the other one has failed.
STOP = ("! TUTTI_TIMEOUT=2 tutti run -n 2 -- bash -c 'if [ $RANK = 1 ]; then (sleep 1; kill -STOP $$) & fi; exec tutti bench "
        "all_reduce --max 8 --iterations 10000000'")
STRANGER = f"""export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) WORLD_SIZE=2 TUTTI_INIT_TIMEOUT=3
RANK=0 TUTTI_TOKEN=0123456789abcdef0123456789abcdef {CALLS} &
! RANK=1 TUTTI_TOKEN=fedcba9876543210fedcba9876543210 {CALLS}
! wait $!"""


def stalled(out):
    """1 where rank 1 alone is said to be able to go on."""
    named = re.findall(r"; rank (\d+) [^;]*?(?:has not taken the message|sends nothing to|is still in call)", out.text)
    return int(set(named) == {"1"})


def stopped(out):
    return int(re.search(r"waiting for rank 1 [^;]*, which does not answer", out.text) is not None)


SURVIVE = ("tutti train --data text --model gpt2 --layers 1 --width 32 --heads 2 --context 32 --batch 12 --micro-batch 1 --steps 12 "
           "-n 3")

FACTS = [
    Fact("Optimizer", "AdamW", "PyTorch's form, decay on matrices only; β1 0.9, β2 0.95; cosine decay with warm-up", [
        Figure(f"default {name} of a language model", "tutti train --data text --model gpt2 -n 1 --print-config",
               lambda out, name=name: out.number(rf'"{name}": ([\d.]+)'), want=want)
        for name, want in (("beta1", 0.9), ("beta2", 0.95))]),
    Fact(DATA, "Columnar files, parallel workers", "the device never waits for input", [
        waits(0, "nobody reads ahead", 0.005, 0.1), waits(1, "a thread reads ahead", 0, 0.01)]),
    Fact(DATA, "GPT-3's mixture after 300 B tokens", "epochs 0.44, 2.9, 1.9, 0.43, 3.4", [
        epochs("410B", 0.44), epochs("19B", 2.9, 0.2), epochs("12B", 1.9, 0.05), epochs("55B", 0.43), epochs("3B", 3.4, 0.15)],
        "shown, but for 19B and 3B: the paper's weights are rounded, to 101% together"),
    Fact(BEYOND, "Every algorithm proved, priced, simulated, run", "from one program", [
        Figure("algorithms of 8 ranks that a simulation refuses",
               "tutti simulate all_reduce --topology switch:8 --bytes 1M --algorithm all --json all.json",
               lambda out: 0 if len(out.json("all.json")["results"]) >= 10 else 1, want=0)]),
    Fact(BEYOND, "No hang without a name", "who died or stopped is named", [
        Figure("a killed rank is named", DEATH, lambda out: int("rank 1" in out.text and "signal 9" in out.text), want=1),
        Figure("of two ranks that wait for each other, the one that has stalled is named", STALL, stalled, want=1),
        Figure("a rank that is stopped is named", STOP, stopped, want=1)]),
    Fact(BEYOND, "The same bits from every algorithm", "canonical algorithms have one result", [
        Figure(f"different results of {len(CANONICAL)} canonical algorithms, 5 ranks", "; ".join(digest(name) for name in CANONICAL),
               digests, want=1),
        Figure("all-reduce algorithms with the same bits on all ranks, in an order of their own", ALGORITHMS,
               lambda out: out.text.count("same bits"), want=8),
        Figure("canonical ones", ALGORITHMS, lambda out: out.text.count("canonical"), want=10)],
        "shown; the others would have to send more bytes to be canonical ([why](../../../collectives/README.md))"),
    Fact(BEYOND, "Shared memory at the hardware's floor", "time over the floor's", [
        Figure("time over the floor's (geometric mean, 8 B to 1 MiB)",
               "tutti bench all_reduce -n 2 --min 8 --max 1M --factor 64 --peers floor",
               lambda out: out.number(r"time over floor's: geometric mean ([\d.]+)"), most=4, small=False, needs="floor_peer")]),
    Fact(BEYOND, "An authenticated bootstrap", "strangers cannot join", [
        Figure("a rank with another token is refused, and told so", STRANGER,
               lambda out: int("refused this rank: the two have different tokens" in out.text), want=1)]),
    Fact(BEYOND, "Survivors go on after a death", "the losses of an undisturbed run", [
        Figure("largest relative difference of losses after rank 2 of 3 is killed",
               f"{SURVIVE} --json whole.jsonl; TUTTI_FAULT=kill:2:60 {SURVIVE} --min-ranks 2 --json hurt.jsonl",
               same_losses("hurt.jsonl", "whole.jsonl"), most=1e-7)]),
    Fact(BEYOND, "The same library under C++, C, MPI and NCCL programs, PyTorch", "one library", [], "shown by tests: "
         "`tools/test //tests/bindings/...`, `tools/check_torch`"),
]
