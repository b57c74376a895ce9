"""Facts about collectives."""
from fact import Fact, Figure

SECTION = "Communication"
P = 8  # ranks


def drawn(algorithm, name, pattern, want, ranks=P):
    return Figure(name, f"tutti draw {algorithm} -n {ranks}", lambda out: out.number(pattern), want=want)


def messages(algorithm, want):
    return drawn(algorithm, f"messages of {P} ranks", r"messages: (\d+)", want)


def sent(algorithm, want):
    return drawn(algorithm, "times the buffer that a rank sends at most", r"at most ([\d.]+) times", want)


def ring_time():
    """Returns the figure of a ring all-reduce's time on a simulated ring: T = 2 (alpha (p-1) + beta (p-1)/p n)."""
    alpha, bandwidth, size = 1e-6, 100e9, 64 << 20
    want = 2 * (alpha * (P - 1) + (P - 1) / P * size / bandwidth) * 1e6
    command = f"tutti simulate all_reduce --topology ring:{P},bandwidth=100GB/s,latency=1us --bytes 64M --algorithm ring --json r.json"
    return Figure("microseconds of 64 MiB in a ring of 100 GB/s, 1 us", command,
                  lambda out: out.json("r.json")["results"][0]["time_us"], want=want, within=0.001, unit="us")


def wrong_values(out):
    rows = [line.split() for line in out.text.splitlines() if line and not line.startswith(("#", " " * 7 + "bytes"))]
    return sum(int(row[8]) for row in rows if len(row) >= 9)


EVERY_TYPE = ("for d in i8 i32 i64 u8 f16 bf16 f32 f64; do for o in sum prod min max; do "
              "tutti bench all_reduce -n 3 --dtype $d --op $o --min 60 --max 6000 --factor 10 --iterations 2; done; done")


def peers(name):
    return Figure(f"time over {name}'s (geometric mean)",
                  "tutti bench all_reduce -n 2 --min 8 --max 1M --factor 64 --peers openmpi,mpich,gloo",
                  lambda out: out.number(rf"time over {name}'s: geometric mean ([\d.]+)"), most=1, small=False,
                  needs=f"{name}_peer")


def host_sends(algorithm):
    return (f"tutti simulate all_reduce --topology fat-tree:hosts=4,gpus=8 --bytes 64M --algorithm {algorithm} "
            f"--json {algorithm}.json")


def gain(out):
    seconds = [out.json(f"{name}.json")["results"][0]["time_us"] for name in ("hierarchical", "naive")]
    return seconds[0] / seconds[1]


SMALL_GPT = ("tutti train --data text --model gpt2 --layers 2 --width 32 --heads 2 --context 32 --batch 16 --micro-batch 4 "
             "--steps 2")


def boundary(out):
    sent_by = [out.lines(name)[0]["bytes_sent_by_axis"]["pipeline"] for name in ("one.jsonl", "two.jsonl")]
    return sent_by[0] / sent_by[1]


FACTS = [
    Fact(SECTION, "All-reduce", "correct for every number of ranks, type and operator", [
        Figure("programs that are not proved, 1 to 8 ranks", "tutti verify --max-ranks 8",
               lambda out: 0 if out.number(r"^(\d+) programs proved") > 0 else 1, want=0),
        Figure("wrong values of 8 types and 4 operators, 3 ranks", EVERY_TYPE, wrong_values, want=0)]),
    Fact(SECTION, "Naive: each sends all its tensor", "p(p-1) messages; O(np) for each", [
        messages("naive", P * (P - 1)), sent("naive", P - 1)]),
    Fact(SECTION, "Parameter server", "2(p-1) transfers, O(np) in all, all of it at the manager", [
        messages("parameter_server", 2 * (P - 1)), sent("parameter_server", P - 1)]),
    Fact(SECTION, "Ring", "2(p-1) rounds of n/p: 2(p-1)/p n a rank; T = 2(α(p-1) + β(p-1)/p n)", [
        drawn("ring", f"rounds of {P} ranks", r"rounds: (\d+)", 2 * (P - 1)), sent("ring", 2 * (P - 1) / P), ring_time()]),
    Fact(SECTION, "Double binary tree", "O(log p) latency", [
        Figure(f"rounds of {ranks} ranks over 2 log2 p", f"tutti draw double_binary_tree -n {ranks}",
               lambda out, log=log: out.number(r"rounds: (\d+)") / (2 * log), want=1)
        for ranks, log in ((8, 3), (64, 6), (256, 8))]),
    Fact(SECTION, "Open MPI, MPICH, NCCL, Gloo, Horovod", "the same jobs beside them",
         [peers("openmpi"), peers("mpich"), peers("gloo")],
         "partly: NCCL needs a GPU (`tools/gpu_check`); Horovod is not there: on CPUs it sums by MPI or Gloo, which are"),
    Fact(SECTION, "Two-level topologies, B1 > B2", "hierarchical collectives chosen by topology", [
        Figure("hierarchical is chosen for 2 hosts of 8", "tutti explain all_reduce -n 16 --group 8,8 --bytes 64M",
               lambda out: int("  > hierarchical" in out.text), want=1),
        Figure("its simulated time over naive's, 4 hosts of 8", f"{host_sends('hierarchical')}; {host_sends('naive')}", gain,
               most=0.02)]),
    Fact(SECTION, "Scatter-gather between stages", "less traffic a link by the number of links", [
        Figure("bytes of a rank's boundary with 1 tensor rank, over those with 2",
               f"{SMALL_GPT} -n 2 --pp 2 --json one.jsonl; {SMALL_GPT} -n 4 --pp 2 --tp 2 --json two.jsonl", boundary, want=2)]),
]
