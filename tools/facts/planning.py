"""Facts about planning: layouts, scaling laws, published runs."""
from fact import Fact, Figure

SECTION = "Planning"

# Narayanan et al., 2021, table 1: parameters in 1e9, tensor, pipeline, GPUs, batch, TFLOP/s a GPU, layers, hidden, heads.
MEGATRON = """1.7 1 1 32 512 137 24 2304 24
3.6 2 1 64 512 138 30 3072 32
7.5 4 1 128 512 142 36 4096 32
18.4 8 1 256 1024 135 40 6144 48
39.1 8 2 512 1536 138 48 8192 64
76.1 8 4 1024 1792 140 60 10240 80
145.6 8 8 1536 2304 148 80 12288 96
310.1 8 16 1920 2160 155 96 16384 128
529.6 8 35 2520 2520 163 105 20480 128
1008 8 64 3072 3072 163 128 25600 160"""
COLUMNS = "id,source,gpu,gpus,gpus_per_node,intra_GBps,inter_GBps,model,layers,hidden,heads,vocab,seq,tp,pp,gbs,precision,recompute,tflops_gpu"


def table():
    rows = [COLUMNS]
    for line in MEGATRON.splitlines():
        parameters, tensor, stages, gpus, batch, speed, layers, hidden, heads = line.split()
        rows.append(f"{parameters},Narayanan 2021,A100-SXM-80GB,{gpus},8,300,25,gpt,{layers},{hidden},{heads},51200,2048,{tensor},{stages},"
                    f"{batch},f16,full,{speed}")
    return "\n".join(rows)


PREDICTED = f"cat > runs.csv <<'E'\n{table()}\nE\ntutti plan --predict runs.csv --json predicted.json"


def errors(out):
    rows = out.json("predicted.json")["rows"]
    return sorted(abs(row["step_s"] / row["measured_s"] - 1) for row in rows)


# Figure 13: 162.2 B parameters on 64 GPUs, batch 32.
FIGURE_13 = """cat > config.json <<'E'
{"model_type": "gpt2", "n_layer": 32, "n_embd": 20480, "n_head": 128, "vocab_size": 51200, "n_positions": 2048}
E
for t in 2 4 8 16 32; do tutti plan --model config.json --cluster dgx-a100:8 --software megatron-2021 --global-batch 32 --seq 2048 \\
  --dp 1 --tp $t --pp $((64 / t)) --zero 0 --virtual 1 --micro-batch 1 --recompute full --show 1 --json $t.json; done"""


def best_tensor(out):
    return min((2, 4, 8, 16, 32), key=lambda t: out.json(f"{t}.json")["layouts"][0]["step_s"])


BUDGET = "tutti plan --budget 4.3e23"
LAWS = [("approach 3, as published", "0.34", "0.28", 28.2, 2540.6), ("approach 1", "0.34", "0.34", 263.6, 271.9),
        ("approach 1", "0.28", "0.28", 262.7, 272.8), ("approach 2", "0.34", "0.33", 165.3, 433.5),
        ("approach 2", "0.28", "0.27", 166.9, 429.4), ("approach 3", "0.34", "0.29", 41.4, 1731.9),
        ("approach 3", "0.28", "0.24", 43.5, 1645.8)]


def law(method, alpha, beta, size, tokens):
    row = rf"^{method} +{alpha} +{beta} +[\d.]+ +[\d.]+ +[\d.]+ +"
    return [Figure(f"N, 1e9, {method}, {alpha}, {beta}", BUDGET, lambda out: out.number(row + r"([\d.]+)"), want=size),
            Figure(f"D, 1e9, {method}, {alpha}, {beta}", BUDGET, lambda out: out.number(row + r"[\d.]+ +([\d.]+)"), want=tokens)]


HERE = ("tutti plan --model config.json --cluster localhost --ranks 4 --global-batch 16 --seq 64 --show 1 --json plan.json")
HERE_CONFIG = """cat > config.json <<'E'
{"model": {"kind": "gpt2", "layers": 4, "width": 64, "heads": 4, "context": 64}}
E
"""

FACTS = [
    Fact(SECTION, "PTD-P: tensor inside the node, pipeline across, data for the rest", "the planner finds the shape of the table", [
        Figure("best tensor ranks of 162.2 B on 64 GPUs, batch 32 (figure 13)", FIGURE_13, best_tensor, want=8)],
        "partly: free to choose, the planner takes ZeRO 2 and sequence parallelism, which the table's program had not"),
    Fact(SECTION, "Megatron's weak scaling, 1.7 to 1 008 B on 32 to 3 072 A100", "TFLOP/s a GPU of ten runs", [
        Figure("median error of the predicted step times", PREDICTED, lambda out: errors(out)[4:6][0] / 2 + errors(out)[5] / 2,
               most=0.08),
        Figure("largest error", PREDICTED, lambda out: errors(out)[-1], most=0.12)]),
    Fact(SECTION, "Auto-parallelisation (Alpa)", "plans within minutes; compared with exhaustive search", [
        Figure("legal layouts of 4 ranks here, all priced", HERE_CONFIG + HERE, lambda out: out.json("plan.json")["legal"], least=400,
               small=False)],
        "partly: stages are cut by units, not by operators of a graph"),
    Fact(SECTION, "C = 6NBS, scaling laws", "compute-optimal N and D for 4.3e23 operations",
         [figure for row in LAWS for figure in law(*row)]),
]
