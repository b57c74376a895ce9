"""Facts about memory."""
from fact import Fact, Figure, same_losses

SECTION = "Memory"
WIDE = "tutti train --data text --model gpt2 --layers 4 --width 128 --heads 4 --context 32 --steps 2"
STATES = ("parameters", "gradients", "masters", "optimizer", "compression")
PARAMETERS = "tutti train --data text --model gpt2 --layers 4 --width 128 --heads 4 --context 32 --dry-run -n 1 --json f32.jsonl"


def parameters(out):
    return out.lines("f32.jsonl")[0]["memory"][0]["parameters"] / 4


def bytes_a_parameter(out):
    measured = out.lines("run.jsonl")[-1]["memory"]
    return sum(measured[kind] for kind in STATES) / parameters(out)


def states(what, options, want, within=0.001, ranks=1):
    command = f"{PARAMETERS}; {WIDE} -n {ranks} --precision bf16 {options} --json run.jsonl"
    return Figure(f"bytes a parameter, {what}", command, bytes_a_parameter, want=want, within=within)


def zero_formula(stage, ranks):
    return {0: 16, 1: 4 + 12 / ranks, 2: 2 + 14 / ranks, 3: 16 / ranks}[stage]


def zero(stage, ranks):
    command = f"{PARAMETERS}; {WIDE} -n {ranks} --batch {ranks} --micro-batch 1 --precision bf16 --zero {stage} --json run.jsonl"
    return Figure(f"bytes a parameter on a rank of {ranks}, ZeRO {stage}", command, bytes_a_parameter,
                  want=zero_formula(stage, ranks), within=0.02)


def volume(stage, want):
    command = f"{PARAMETERS}; {WIDE} -n 4 --batch 4 --micro-batch 1 --precision bf16 --zero {stage} --json run.jsonl"
    return Figure(f"values sent a parameter and step, over (N-1)/N, ZeRO {stage}", command,
                  lambda out: out.lines("run.jsonl")[0]["bytes_sent_by_axis"]["data"] / 2 / (3 / 4)
                  / parameters(out), want=want, within=0.02)


def planned(model, row, want, within, what, more="", unit="GB"):
    columns = r" +([\d.]+) +[\d.]+$" if unit == "GB" else r" +[\d.]+ +([\d.]+)$"
    return Figure(what, f"tutti plan --memory --model {model} {more}".rstrip(),
                  lambda out: out.number(rf"^{row}.*?{columns}"), want=want, within=within, unit=unit)


DEEP = ("tutti train --data text --model gpt2 --layers 96 --width 64 --heads 2 --context 128 --batch 8 --micro-batch 8 -n 1 "
        "--dry-run --recompute")


def activations(out, name):
    return out.lines(name)[0]["memory"][0]["activations"]


DEPTH = 'python3 $TREE/bench/depth.py --tutti "$(which tutti)" --data text --limit 300 --json depth.json --out memory.svg'
HALVES = ("tutti train --data text --model gpt2 --layers 1 --width 32 --heads 2 --context 64 --batch 64 --micro-batch 8 -n 1 --steps 6 "
          "--lr 0.003 --validation-samples 2048 --vocabulary 32768")
SCALES = "; ".join(f"{HALVES} {options} --json {name}.jsonl" for name, options in (
    ("f32", "--precision f32"), ("plain", "--precision fp16 --loss-scale none"), ("scaled", "--precision fp16")))
TF32 = f"{SCALES}; {HALVES} --precision f32 --gemm-format tf32 --json tf32.jsonl"
SLOW = ("tutti train --data text --model gpt2 --layers 1 --width 32 --heads 2 --context 32 --batch 16 --micro-batch 16 -n 1 --steps 200 "
        "--lr 0.00002 --lr-schedule constant --warmup 1 --weight-decay 0 --clip 0 --validation-samples 2048")
ROUNDED = "; ".join(f"{SLOW} {options} --json {name}.jsonl" for name, options in (
    ("f32", "--precision f32"), ("nearest", "--precision bf16 --nearest-rounding"), ("masters", "--precision bf16"),
    ("chance", "--precision bf16 --stochastic-rounding")))


ROUNDINGS = "tutti verify --wire bf16 --max-ranks 8 --collective all_reduce"


def loss(out, name):
    return out.lines(f"{name}.jsonl")[-1]["validation_loss"]


def learnt(name):
    """Returns a reader of a run's fall in loss, divided by the fall in f32."""
    first = lambda out: out.losses("f32.jsonl")[0]
    return lambda out: (first(out) - loss(out, name)) / (first(out) - loss(out, "f32"))


TENSOR = ("tutti train --data text --model gpt2 --layers 96 --width 64 --heads 4 --context 128 --batch 8 --micro-batch 8 --dry-run "
          "--recompute full")

POOL = "; ".join(f"{WIDE.replace('--layers 4 --width 128', f'--layers {layers} --width 64')} --batch 4 --micro-batch 1 -n 4 --zero 3 "
                 f"--precision bf16 --bucket-mb 0.1 --json {layers}.jsonl" for layers in (8, 32))
GROWTH = "; ".join(f"tutti train --data text --model gpt2 --layers 2 --width 32 --heads 2 --context 32 --batch 16 --micro-batch 4 -n 2 "
                   f"--steps {steps} --json {steps}.jsonl" for steps in (6, 60))


def gathered(out, layers):
    return out.lines(f"{layers}.jsonl")[-1]["memory"]["gathered"]


FACTS = [
    Fact(SECTION, "Mixed precision: fp16, bf16, tf32, fp32 masters, loss scaling", "swamping, underflow and rounding, shown and cured", [
        Figure("underflow: loss in fp16 without loss scaling over that in f32, 32 768 words", SCALES,
               lambda out: loss(out, "plain") / loss(out, "f32"), least=1.01),
        Figure("cured: with dynamic loss scaling", SCALES, lambda out: loss(out, "scaled") / loss(out, "f32"), want=1, within=0.001),
        Figure("swamping: part of what f32 learns at a small rate, bf16 rounded to the nearest", ROUNDED, learnt("nearest"), most=0.4),
        Figure("cured: bf16 with fp32 masters", ROUNDED, learnt("masters"), want=1, within=0.005),
        Figure("cured: bf16 with stochastic rounding", ROUNDED, learnt("chance"), want=1, within=0.02),
        Figure("rounding: how often a sum over 8 ranks that travels in bf16 is rounded, by a ring", ROUNDINGS,
               lambda out: out.number(r"ring  .* (\d+) roundings"), want=8),
        Figure("cured: by a canonical algorithm", ROUNDINGS, lambda out: out.number(r"two_shot .* (\d+) roundings"), want=2),
        Figure("tf32, which rounds products' operands to 10 bits: loss over that in f32", TF32,
               lambda out: loss(out, "tf32") / loss(out, "f32"), want=1, within=1e-5),
        Figure("largest relative difference of its losses from those in f32", TF32, same_losses("tf32.jsonl", "f32.jsonl"),
               least=1e-9, most=1e-5)]),
    Fact(SECTION, "Adam's states in mixed precision", "16 bytes a parameter; 20 with an fp32 copy of gradients", [
        states("one micro-batch a step", "--batch 8 --micro-batch 8", 16),
        states("gradients summed in fp32", "--batch 8 --micro-batch 2", 18),
        states("gradients summed in fp32, sent in bf16", "--batch 8 --micro-batch 2 --compression bf16", 20, ranks=2),
        states("8-bit moments", "--batch 8 --micro-batch 8 --optimizer adamw8bit", 10.03, 0.01),
        states("no masters (stochastic rounding)", "--batch 8 --micro-batch 8 --stochastic-rounding", 12),
        planned("1.5B", "model states", 24, 0.001, "GB of GPT-2 1.5B"),
        planned("1.5B", "with another copy of gradients", 30, 0.001, "the same with an fp32 copy of gradients")]),
    Fact(SECTION, "ZeRO, 7.5 B parameters on 64 ranks", "120, 31.4, 16.6 and 1.9 GB a rank", [
        planned("7.5B", f"a rank of 64, ZeRO {stage}", want, 0.015, f"GB, ZeRO {stage}", "-n 64")
        for stage, want in enumerate((120, 31.4, 16.6, 1.9))]),
    Fact(SECTION, "ZeRO, measured", "bytes of a rank by the formulas at every N; volume 2Ψ, 2Ψ, 3Ψ",
         [zero(stage, ranks) for ranks in (2, 4) for stage in range(4)] + [volume(1, 2), volume(2, 2), volume(3, 3)]),
    Fact(SECTION, "ZeRO-R", "activations / N; buffers of constant size; no growth, no fragmentation", [
        Figure("kept inputs of blocks on 1 tensor rank over those on 2",
               f"{TENSOR} -n 2 --tp 2 --json whole.jsonl; {TENSOR} -n 2 --tp 2 --partition-activations --json part.jsonl",
               lambda out: (activations(out, "whole.jsonl") / activations(out, "part.jsonl")), least=1.6, most=2),
        Figure("whole buckets of 32 blocks over those of 8, ZeRO 3", POOL, lambda out: gathered(out, 32) / gathered(out, 8), want=1),
        Figure("memory of the process after 60 steps over after 6", GROWTH,
               lambda out: out.lines("60.jsonl")[-1]["process_bytes"] / out.lines("6.jsonl")[-1]["process_bytes"], most=1.05)]),
    Fact(SECTION, "Gradient checkpointing", "more than 10 times larger models, 20 to 33% more compute", [
        Figure("activations without over with recomputation, 96 blocks, planned", f"{DEEP} none --json none.jsonl; {DEEP} full --json full.jsonl",
               lambda out: activations(out, "none.jsonl") / activations(out, "full.jsonl"), least=10),
        Figure("times as deep in 300 MB of resident memory, measured", DEPTH, lambda out: out.json("depth.json")["deeper"], least=10,
               small=False),
        Figure("more processor time", DEPTH, lambda out: out.json("depth.json")["more_compute"], least=0.2, most=0.5,
               small=False)]),
    Fact(SECTION, "Offload, swapping, quantisation", "as options", [
        states("8-bit moments", "--batch 8 --micro-batch 8 --optimizer adamw8bit", 10.03, 0.01)],
        "partly: states, shards and recomputation's inputs in files (`--offload`), 8-bit states, products in fp8, MXFP8 and NVFP4 (`--gemm-format`); the fact's times are not compared"),
    Fact(SECTION, "Bytes of parameters", "1 B in fp16: 1.86 GiB; 175 B: 350 GB = 326 GiB", [
        planned("1B", "parameters in fp16", 1.86, 0.003, "GiB of 1 B, fp16", unit="GiB"),
        planned("175B", "parameters in fp16", 350, 0, "GB of 175 B, fp16"),
        planned("175B", "parameters in fp16", 326, 0.001, "GiB of 175 B, fp16", unit="GiB"),
        planned("175B", "parameters in uint8", 175, 0, "GB of 175 B, uint8")]),
    Fact(SECTION, "Residual states of the 1.5 B model", "activations about 60 GB, buffers about 5 GB, 30% lost by fragmentation", [
        planned("gpt2-xl", "activations of", 60, 0.02, "GB of activations, 32 x 1 024 tokens", "--global-batch 32 --seq 1024"),
        planned("gpt2-xl", "the same with full", 8, 0.25, "GB with recomputation (the paper: about 8)",
                "--global-batch 32 --seq 1024"),
        planned("gpt2-xl", "all gradients in one", 5, 0.25, "GB of a flat fp32 buffer (the paper: 6)",
                "--global-batch 32 --seq 1024"),
        Figure("% of reserved memory that is never of use, an allocator", "fragmentation",
               lambda out: out.number(r"^allocator .* ([\d.]+)%"), least=14, most=15, needs="fragmentation"),
        Figure("the same, contiguous", "fragmentation", lambda out: out.number(r"^arena .* ([\d.]+)%"), want=0,
               needs="fragmentation")],
        "partly: the 30% are one program's; shown is that an allocator loses memory where the arena loses none"),
]
