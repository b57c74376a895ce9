"""The sections of tools/gpu_check. Each is called with the programs and the report."""

import json
import os
import re
import shutil
import tempfile

from mps import Mps

COLLECTIVES = [
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan",
    "exscan", "all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv", "send_recv",
]  # fmt: skip


def gpu_count(programs, report):
    """Returns the number of GPUs that the driver lists."""
    if "gpus" not in report.values:
        machine(programs, report)
    return report.values["gpus"]


# ---- machine


def machine(programs, report):
    report.begin("Machine")
    query = "name,driver_version,memory.total,compute_cap,pci.bus_id"
    gpus = []
    if shutil.which("nvidia-smi"):
        code, output, _ = report.run(
            "nvidia-smi", ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], {}, 30
        )
        gpus = [line.strip() for line in output.splitlines() if code == 0 and line.strip()]
    for line in gpus:
        report.say(f"- GPU: {line}")
    emulated = int(os.environ.get("FAKE_CUDA_DEVICES", "0"))
    report.value("gpus", len(gpus) or emulated)
    if emulated and not gpus:
        report.say(f"- {emulated} emulated GPUs: the driver of tests/support/fake_cuda; times mean nothing")
    if not report.values["gpus"]:
        report.result("a GPU", "failed", 0, "nvidia-smi lists none: is the driver installed, and CUDA_VISIBLE_DEVICES right?")


# ---- tests


def _cases(program, report, environment):
    code, output, _ = report.run(program, [program, "--gtest_list_tests"], environment, 60)
    cases, suite = [], ""
    for line in output.splitlines() if code == 0 else []:
        name = line.split("#")[0].rstrip()
        if name and not name.startswith(" "):
            suite = name
        elif name.strip() and suite.endswith("."):
            cases.append(suite + name.strip())
    if not cases:
        report.result(os.path.basename(program), "failed", 0, "its tests cannot be listed\n" + output)
    return [case for case in cases if re.search(report.options.cases, case)]


def tests(programs, report):
    """Runs each test case in a separate process, so that a hang or crash affects only that case."""
    gpu_count(programs, report)
    report.begin("Device tests, ranks as threads")
    for program in programs.tests:
        environment = programs.environment(program)
        for case in _cases(program, report, environment):
            name = f"{os.path.basename(program)}: {case}"
            before = len(report.results)
            code, output, seconds = report.run(name, [program, f"--gtest_filter={case}"], environment, 30)
            if len(report.results) > before:
                continue
            if code == 0 and "[  SKIPPED ]" in output:
                reason = re.search(r"Skipped\n(.*)\n", output)
                report.result(name, "skipped", seconds, reason.group(1) if reason else "")
            elif code == 0:
                report.result(name, "passed", seconds)
            else:
                why = f"no answer within {seconds:.0f} s" if code is None else f"exit code {code}"
                report.result(name, "failed", seconds, f"{why}\n{output}")


# ---- processes


def _bench(programs, report, name, words, timeout=90, **environment):
    """Returns the JSON of `tutti bench`, or None if it failed or a value was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "bench.json")
        command = [programs.tutti, "bench", *words, "--json", file]
        if report.check(name, command, programs.environment(**environment), timeout) is None:
            return None
        with open(file, encoding="utf-8") as text:
            table = json.load(text)
    wrong = sum(row["wrong"] or 0 for row in table["results"])
    if wrong:
        report.result(name + ": values", "failed", 0, f"{wrong} wrong values")
        return None
    return table


def processes(programs, report):
    gpus = gpu_count(programs, report)
    report.begin("Collectives, ranks as processes")
    ranks = min(max(gpus, 2), 8)
    with Mps(ranks > gpus) as mps:
        _say_how_shared(report, ranks > gpus, mps)
        _collectives(programs, report, str(ranks), mps.environment)


def _say_how_shared(report, shared, mps):
    if shared:
        how = "at a time, by MPS" if mps.environment else "one after the other: each message takes a time slice"
        report.say(f"- ranks share a GPU {how}")


def _collectives(programs, report, ranks, environment):
    def bench(name, words, **more):
        return _bench(programs, report, name, words, **environment, **more)

    device = ["--device", "cuda"]
    short = ["--min", "1K", "--max", "1M", "--factor", "32", "--iterations", "3"]
    for collective in COLLECTIVES:
        bench(f"{collective}, {ranks} ranks", [collective, "-n", ranks, *device, *short])
    for protocol in ("lines", "simple", "staged", "engines"):
        words = ["all_gather", "-n", ranks, *device, "--buffers", "registered", *short]
        bench(f"all_gather by {protocol}", words, TUTTI_GPU_PROTOCOL=protocol)
    for buffers in ("registered", "library"):
        words = ["all_reduce", "-n", ranks, *device, "--buffers", buffers, "--algorithm", "all", *short]
        bench(f"all_reduce in {buffers} windows, all algorithms", words)
    bench("all_reduce as a graph", ["all_reduce", "-n", ranks, *device, "--graph", *short])
    for dtype in ("f32", "bf16", "f8e5m2"):
        words = ["all_reduce", "-n", ranks, "--dtype", dtype, "--digest", "--deterministic", "--min", "90K", "--max"]
        words += ["90K", "--iterations", "2"]
        name = f"deterministic {dtype} sums"
        on_gpu = bench(name + " on GPUs", words + device)
        on_host = bench(name + " on the processor", words)
        if on_gpu and on_host:
            digests = [table["results"][0]["digest"] for table in (on_gpu, on_host)]
            outcome = "passed" if digests[0] == digests[1] else "failed"
            report.result(name + ": the same bits", outcome, 0, " and ".join(digests))


# ---- sanitizer


def sanitizer(programs, report):
    gpus = gpu_count(programs, report)
    report.begin("compute-sanitizer")
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(program, os.X_OK):
        report.result("compute-sanitizer", "skipped", 0, "it is not installed; it comes with the CUDA toolkit")
        return
    if gpus < 2:
        why = "it runs one kernel of a GPU at a time, and kernels of ranks that share one wait for each other"
        report.result("compute-sanitizer", "skipped", 0, why)
        return
    small = ["--min", "1K", "--max", "256K", "--factor", "256", "--iterations", "2"]
    for tool in ("memcheck", "synccheck", "initcheck", "racecheck"):
        command = [program, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"]
        for collective in ("all_reduce", "all_to_all") if tool == "memcheck" else ("all_reduce",):
            bench = [programs.tutti, "bench", collective, "-n", "2", "--device", "cuda", *small]
            report.check(f"{tool}: {collective}", [*command, *bench], programs.environment(), 60)


# ---- tune


def tune(programs, report):
    gpus = gpu_count(programs, report)
    report.begin("tune")
    if gpus < 2:
        report.result("tutti tune --device cuda", "skipped", 0, "costs of links need two GPUs")
        return
    file = os.path.join(report.folder, "tune.json")
    output = report.check(
        "tutti tune --device cuda",
        [programs.tutti, "tune", "--device", "cuda", "--json", file],
        programs.environment(),
        150,
    )
    if output:
        report.say(output.strip().splitlines()[-1])


# ---- bench


def _size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def _explained(programs, report, ranks, sizes):
    """Returns microseconds by size, as `tutti explain` predicts them for this machine's GPU class."""
    with_costs = {}
    tuned = os.path.join(report.folder, "tune.json")
    if os.path.exists(tuned):
        with_costs["TUTTI_TUNE_FILE"] = tuned
    code, output, _ = report.run(
        "explain",
        [programs.tutti, "explain", "all_reduce", "-n", str(ranks), "--gpu", "auto"],
        programs.environment(**with_costs),
        30,
    )
    times = {}
    for line in output.splitlines() if code == 0 else []:
        words = line.split()
        if len(words) > 4 and words[0].isdigit() and int(words[0]) in sizes:
            times[int(words[0])] = float(words[4])
    return times


def _peers(programs):
    """Returns the GPU peers of `tutti bench` that can run: NCCL refuses ranks that share a GPU."""
    environment = programs.environment()
    folders = [path for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path]
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(":") + ["/usr/lib/x86_64-linux-gnu", "/usr/local/lib"]
    has_nccl = any(folder and os.path.exists(os.path.join(folder, "libnccl.so.2")) for folder in folders)
    return ["floor", "nccl"] if has_nccl else ["floor"]


def bench(programs, report):
    gpus = gpu_count(programs, report)
    report.begin("Bandwidth")
    known = _peers(programs)
    if "nccl" not in known:
        report.say("- NCCL: no libnccl.so.2 on LD_LIBRARY_PATH or in the system's folders; not compared")
    for ranks in sorted({1, 2, min(max(gpus, 1), 8)}):
        shared = ranks > gpus
        with Mps(shared) as mps:
            _say_how_shared(report, shared, mps)
            for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") if ranks > 1 else ("all_reduce",):
                _bench_table(programs, report, collective, ranks, ["floor"] if shared else known, mps.environment)


def _bench_table(programs, report, collective, ranks, peers, environment):
    title = f"{collective}, {ranks} rank{'s' if ranks > 1 else ''}"
    words = [collective, "-n", str(ranks), "--device", "cuda", "--min", "8", "--max", report.options.largest, "--factor", "32"]
    with_peers = [*words, "--rounds", "3", "--peers", ",".join(peers)]
    table = _bench(programs, report, title, with_peers, timeout=120, **environment)
    if table is None:
        return
    columns = {"Tutti": table}
    for buffers in ("registered", "library") if ranks > 1 else ():
        name = f"Tutti, {buffers}"
        columns[name] = _bench(programs, report, f"{title}, {buffers}", [*words, "--buffers", buffers], **environment)
    by_size = {name: {row["bytes"]: row for row in one["results"]} for name, one in columns.items() if one}
    sizes = set(by_size["Tutti"])
    is_explained = collective == "all_reduce" and 1 < ranks <= gpu_count(programs, report)
    explained = _explained(programs, report, ranks, sizes) if is_explained else {}
    header = ["bytes", *(f"{name}, us" for name in by_size), *(f"{peer}, us" for peer in peers), "Tutti, GB/s (algbw)"]
    header += ["of the floor's rate"] + (["explain, us"] if explained else [])
    rows = []
    for size, row in by_size["Tutti"].items():
        times = [f"{one[size]['time_us']:.1f}" if size in one else "-" for one in by_size.values()]
        others = [row.get("peers", {}).get(peer, {}).get("time_us") for peer in peers]
        floor = others[peers.index("floor")]
        cells = [_size(size), *times, *(f"{time:.1f}" if time else "-" for time in others), f"{row['algbw_GBps']:.2f}"]
        cells.append(f"{floor / row['time_us']:.2f}" if floor else "-")
        if explained:
            cells.append(f"{explained[size]:.1f}" if size in explained else "-")
        rows.append(cells)
    report.table(header, rows)
    report.value(title, {"header": header, "rows": rows})


SECTIONS = {
    "machine": machine,
    "tests": tests,
    "processes": processes,
    "sanitizer": sanitizer,
    "tune": tune,
    "bench": bench,
}
