"""Facts about pipelines, tensor, expert and spatial parallelism."""
import re

from fact import Fact, Figure, same_losses

SECTION = "Model parallelism"
GPT = ("tutti train --data text --model gpt2 --layers 4 --width 32 --heads 4 --context 32 --batch 16 --micro-batch 2 --steps 4")
P, M = 4, 8  # stages, micro-batches
EXACT = 1e-4  # what percent with two digits show


def percent(out):
    return out.number(r"one step +makespan \d+, bubble ([\d.]+)%") / 100


def bubble(schedule, want, options=""):
    return Figure(f"bubble of {schedule}, {P} stages, {M} micro-batches", f"tutti pipeline {schedule} -p {P} -m {M} {options}",
                  percent, want=want, within=5 * EXACT)


def measured(schedule):
    return Figure(f"bubble of {schedule} on sleeping ranks over the table's",
                  f"tutti pipeline {schedule} -p 2 -m 4 --measure --sleep 20",
                  lambda out: out.number(r"measured: one step.*bubble ([\d.]+)%") / out.number(
                      r"one step +makespan \d+, bubble ([\d.]+)%"), least=0.95, most=1.15, small=False)


def kept(schedule, want):
    return Figure(f"micro-batches whose activations rank 0 keeps, {schedule}", f"tutti pipeline {schedule} -p {P} -m {M}",
                  lambda out: out.number(r"^ +0 +(\d+)"), want=want)


def in_pipeline(name, schedule):
    return f"{GPT} -n 4 --pp 4 --schedule {schedule} --json {name}.jsonl"


LAYOUTS = ("export TUTTI_DETERMINISTIC=1; " + f"{GPT} -n 1 --json one.jsonl; {GPT} -n 4 --dp 1 --tp 2 --pp 2 --json mixed.jsonl; "
           f"{GPT} -n 4 --dp 1 --tp 4 --sp --json tensor.jsonl; {in_pipeline('gpipe', 'gpipe')}; {in_pipeline('zb', 'zb-h1')}")
UNTIED, TIED = ("export TUTTI_DETERMINISTIC=1; " + "; ".join(f"{run} {option}".rstrip() for run in (
    f"{GPT} -n 1 --json one.jsonl", in_pipeline("chimera", "chimera"))) for option in ("--untied", ""))


def versions(out):
    return out.number(r"^ +0 +\d+ +(\d+)")


PROFILE = """cat > profile.json <<'E'
{"format": "tutti-profile", "version": 1, "model": "by hand", "samples": 10, "layers": [
{"name": "conv1", "forward_s": 5, "backward_s": 10, "activation_bytes": 30720, "parameter_bytes": 1024},
{"name": "conv2", "forward_s": 5, "backward_s": 25, "activation_bytes": 2048, "parameter_bytes": 1024},
{"name": "fc", "forward_s": 3, "backward_s": 6, "activation_bytes": 1024, "parameter_bytes": 102400}]}
E
tutti partition --profile profile.json --ranks-per-node 4 --bandwidth-inside 1K --json p.json"""

BLOCKS, WIDTH, TOKENS = 4, 32, 16 * 32


def sums_a_block(out):
    """Returns how many all-reduces of tokens x width values a tensor rank sends per block.

    Compares two depths, so that the embedding and the output layer cancel out."""
    sent = [out.lines(name)[0]["bytes_sent_by_axis"]["tensor"] for name in ("four.jsonl", "two.jsonl")]
    return (sent[0] - sent[1]) / 2 / (TOKENS * WIDTH * 4)


TWO_DEPTHS = "; ".join(f"{GPT} --layers {layers} -n 2 --tp 2 --json {name}.jsonl" for layers, name in ((4, "four"), (2, "two")))

IMAGES, HIDDEN, CLASSES, PIXELS = 32, 128, 4, 256
PERCEPTRON = (f"tutti train --data shapes:16x16 --model perceptron --widths {HIDDEN} --batch {IMAGES} --micro-batch {IMAGES} -n 2 "
              "--tp 2 --steps 1 --json run.jsonl --mix")


def mixed(what, letters, want, axis):
    return Figure(f"values a rank sends, all layers {what}", f"{PERCEPTRON} {letters}",
                  lambda out: out.lines("run.jsonl")[0]["bytes_sent_by_axis"][axis] / 4, want=want, within=0.002)


UNET = "tutti train --data shapes:64x64 --model unet --batch 4 --micro-batch 1 --steps 3 --optimizer sgd"
SPATIAL = f"{UNET} -n 1 --json whole.jsonl; {UNET} -n 4 --spatial 2x2 --json tiles.jsonl"


def gain(size):
    """Returns the figure of the time of one rank's forward pass divided by that of two ranks."""
    return Figure(f"gain of 2 ranks, {size} x {size} pixels, forward", "tutti run -n 2 -- spatial 128 256 512",
                  lambda out: out.number(rf"^(?:\[0\])? *{size} +[\d.]+ +[\d.]+ +([\d.]+)"), least=0.8, most=2.3, small=False,
                  needs="spatial")


EXPERTS = ("tutti train --data text --model switch --layers 1 --width 32 --heads 2 --context 32 --experts 4 --batch 8 --micro-batch 4 "
           "--steps 3 -n 2")

FACTS = [
    Fact(SECTION, "Inter- and intra-operator parallelism", "any mix on one mesh", [
        Figure(f"largest relative difference of losses from one rank, {what}", LAYOUTS, same_losses(f"{name}.jsonl", "one.jsonl"),
               want=0) for name, what in (("mixed", "2 tensor x 2 stages"), ("tensor", "4 tensor ranks, sequence-parallel"),
                                          ("gpipe", "4 stages, GPipe"), ("zb", "4 stages, ZB-H1"))]),
    Fact(SECTION, "GPipe", "bubble (d-1)/(m+d-1); activations of m micro-batches", [
        bubble("gpipe", (P - 1) / (M + P - 1)), kept("gpipe", M), measured("gpipe")]),
    Fact(SECTION, "1F1B, interleaved", "(p-1)/(m+p-1); (p-1)/(vm+p-1)", [
        bubble("1f1b", (P - 1) / (M + P - 1)), kept("1f1b", P), bubble("interleaved", (P - 1) / (2 * M + P - 1), "-v 2"),
        measured("1f1b")]),
    Fact(SECTION, "PipeDream", "profile, partition, replicated stages; weight stashing; 2BW", [
        Figure("replicas of the first stage of the example's plan", PROFILE,
               lambda out: len(out.json("p.json")["partition"]["stages"][0]["ranks"]), want=3),
        Figure("stale versions of the weights on rank 0, pipedream", f"tutti pipeline pipedream -p {P} -m {M}", versions, want=P),
        Figure("the same, 2BW", f"tutti pipeline pipedream-2bw -p {P} -m {M}", versions, want=2),
        Figure("the nearest plan that runs, for one of unequal replicas: samples/s over the plan's", PROFILE,
               lambda out: out.json("p.json")["even"]["samples_per_s"] / out.json("p.json")["partition"]["samples_per_s"],
               want=1 / 3, within=0.001)],
        "partly: plans with unequal replicas are not run; the nearest one that runs is named"),
    Fact(SECTION, "Chimera", "(D-2)/(2N+D-2) where t_B = t_F", [
        bubble("chimera", (P - 2) / (2 * M + P - 2), "--backward-input .5 --backward-weight .5"),
        Figure("largest relative difference of losses from one rank, 4 stages, deterministic mode, untied", UNTIED,
               same_losses("chimera.jsonl", "one.jsonl"), want=0),
        Figure("the same, tied: its two uses are added in another order", TIED, same_losses("chimera.jsonl", "one.jsonl"), most=1e-8)]),
    Fact(SECTION, "Zero bubble", "ZB1P a third of 1F1B's idle time; ZB2P 0", [
        bubble("zb-h1", (P - 1) / (3 * M + P - 1)),
        Figure("bubble of zb-h2, steps back to back", f"tutti pipeline zb-h2 -p {P} -m {M}",
               lambda out: out.number(r"back to back +period \d+, bubble ([\d.]+)%"), want=0)]),
    Fact(SECTION, "Megatron's tensor parallelism", "2 all-reduces a block forward, 2 backward; equals the unsplit layer", [
        Figure("all-reduces a block", TWO_DEPTHS, lambda out: sums_a_block(out), want=4, within=0.01),
        Figure("largest relative difference of losses, 4 tensor ranks and 1", LAYOUTS,
               same_losses("tensor.jsonl", "one.jsonl"), want=0)]),
    Fact(SECTION, "Costs of model and data parallelism", "T = Σ β(P-1)B·d_i/P + 2Σ β(P-1)B·d_i/P; 2Σ β(P-1)d_i²/P", [
        mixed("model-parallel", "m,m", IMAGES * ((HIDDEN + CLASSES) / 2 + 2 * HIDDEN / 2), "tensor"),
        mixed("batch-parallel", "b,b", 2 * (HIDDEN * (PIXELS + 1) + CLASSES * (HIDDEN + 1)) / 2, "data")]),
    Fact(SECTION, "Spatial parallelism, halo exchange", "the gain grows with the resolution; equals the unsplit convolution",
         [Figure("largest relative difference of losses, 2 x 2 tiles and whole images", SPATIAL,
                 same_losses("tiles.jsonl", "whole.jsonl"), most=1e-7)] + [gain(size) for size in (128, 256, 512)]),
    Fact(SECTION, "Expert parallelism (Switch)", "all-to-all dispatch; equals one device", [
        Figure("largest relative difference of losses, experts on 2 ranks and on each",
               f"{EXPERTS} --ep 2 --json two.jsonl; {EXPERTS} --json one.jsonl", same_losses("two.jsonl", "one.jsonl"),
               most=1e-7)]),
    Fact(SECTION, "Fused operators", "bias + GeLU and bias + dropout + add: +11%", [
        Figure(f"% gained by product and chain, {chain}", "fusion",
               lambda out, chain=chain: out.number(rf"^{re.escape(chain)} .* ([-\d.]+)$"), least=-5, most=30,
               needs="fusion") for chain in ("bias + GeLU", "bias + dropout + add", "SwiGLU")],
        "partly: products take most of a processor's time, so 1 to 5% are gained there"),
]
