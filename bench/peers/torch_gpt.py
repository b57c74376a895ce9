#!/usr/bin/env python3
"""Trains a GPT-2 with PyTorch on the CPU: the peer of `tutti train --model gpt2`.

    python3 bench/peers/torch_gpt.py --layers 4 --heads 4 --width 256 --context 256 --batch 8
    python3 bench/peers/torch_gpt.py --ranks 2 --dtype bfloat16 --bf16-mode pure
    python3 bench/peers/torch_gpt.py --profile

Prints one JSON line per timed step ("step", "loss", "tokens_per_s" of all ranks together,
"processor_s" of the first rank) and then a summary. A step consists of reading the batch, forward,
backward, the all-reduce of the gradients, AdamW, and reading the loss. Two or more ranks are processes that use
DistributedDataParallel over Gloo.
"""

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import time

# Otherwise Gloo resolves the host name, which may not belong to this machine.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
from torch import distributed, nn
from torch.nn import functional as F

GLIBC_TRIM_THRESHOLD, GLIBC_MMAP_THRESHOLD = -1, -3  # of mallopt()

LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 3e-4, (0.9, 0.95), 1e-8, 0.1


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in self.c_attn(self.ln_1(x)).split(x.shape[-1], dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).flatten(-2))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Computes a GPT-2 without dropout and with tied embeddings. forward() returns the mean loss."""

    def __init__(self, options):
        super().__init__()
        self.wte = nn.Embedding(options.vocab, options.width)
        self.wpe = nn.Embedding(options.context, options.width)
        self.h = nn.ModuleList(Block(options.heads, options.width) for _ in range(options.layers))
        self.ln_f = nn.LayerNorm(options.width)
        self.register_buffer("positions", torch.arange(options.context), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                residual = name.endswith("_proj.weight")
                nn.init.normal_(parameter,
                                std=0.02 / (2 * options.layers)**0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(self.positions)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class MasterCopies:
    """Updates float32 parameters, or the float32 copies of bfloat16 parameters, by AdamW."""

    def __init__(self, parameters, implementation):
        self.parameters = list(parameters)
        self.copied = self.parameters[0].dtype != torch.float32
        self.masters = self.parameters
        if self.copied:
            self.masters = [p.detach().float() for p in self.parameters]
            for master in self.masters:
                master.grad = torch.empty_like(master)
        self.adamw = torch.optim.AdamW([
            {"params": [p for p in self.masters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in self.masters if p.dim() < 2], "weight_decay": 0.0},
        ], lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, fused=implementation == "fused",
            foreach=implementation == "foreach")

    @torch.no_grad()
    def step(self):
        if self.copied:
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.parameters])
        self.adamw.step()
        if self.copied:
            torch._foreach_copy_(self.parameters, self.masters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


class Batches:
    """Samples random positions of a byte file, or random tokens."""

    def __init__(self, options, rank):
        self.options = options
        self.random = torch.Generator().manual_seed(rank)
        self.data = None
        if options.data:
            with open(options.data, "rb") as file:
                self.data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    def next(self):
        batch, length = self.options.batch, self.options.context + 1
        if self.data is None:
            text = torch.randint(self.options.vocab, (batch, length), generator=self.random)
        else:
            starts = torch.randint(len(self.data) - length + 1, (batch,), generator=self.random)
            text = torch.stack([self.data[s:s + length] for s in starts.tolist()]).long()
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Trainer:
    def __init__(self, options, rank):
        self.rank = rank
        self.batches = Batches(options, rank)
        self.autocast = options.dtype == "bfloat16" and options.bf16_mode == "autocast"
        torch.manual_seed(0)
        model = Gpt2(options)
        if options.dtype == "bfloat16" and not self.autocast:
            model.bfloat16()
        self.optimizer = MasterCopies(model.parameters(), options.adamw)
        if options.ranks > 1:
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.model = torch.compile(model) if options.compile else model

    def step(self):
        tokens, targets = self.batches.next()
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.model(tokens, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


# Classes of PyTorch's operators, by a part of the name; the first match counts.
KINDS = [
    ("attention", ["scaled_dot_product", "flash_attention"]),
    ("gemm", ["mm", "mkldnn_linear", "linear"]),
    ("layer norm", ["layer_norm"]),
    ("gelu", ["gelu"]),
    ("cross entropy", ["softmax", "nll_loss"]),
    ("optimizer", ["adam", "foreach"]),
    ("embedding", ["embedding"]),
    ("add, sum", ["::add", "::sum"]),
    ("copy, fill, cat", ["copy", "fill", "zero", "cat", "contiguous", "clone"]),
]


def kind_of(name):
    lower = name.lower()
    return next((kind for kind, parts in KINDS if any(part in lower for part in parts)), "other")


def profile(trainer, steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            trainer.step()
    events = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    kinds = {}
    for event in events:
        kind = kind_of(event.key)
        kinds[kind] = kinds.get(kind, 0) + event.self_cpu_time_total
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    print(json.dumps({
        "profile_ms_per_step": {kind: round(us / steps / 1e3, 3) for kind, us in ranked},
        "profile_share": {kind: round(us / total, 4) for kind, us in ranked},
    }))
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25))


def keep_freed_memory():
    """Keeps freed pages in malloc(); otherwise each large tensor has new pages, which is up to 10% slower in bfloat16."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt:
        mallopt(GLIBC_MMAP_THRESHOLD, 1 << 30)
        mallopt(GLIBC_TRIM_THRESHOLD, (1 << 31) - 1)


def train(rank, options, rendezvous):
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    if options.ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                                       world_size=options.ranks)
    trainer = Trainer(options, rank)
    for _ in range(options.warmup):
        trainer.step()
    if options.profile:
        profile(trainer, options.steps)
        return

    tokens = options.ranks * options.batch * options.context
    speeds = []
    for step in range(options.steps):
        start, processor_start = time.perf_counter(), time.process_time()
        loss = trainer.step()
        speeds.append(tokens / (time.perf_counter() - start))
        if rank == 0:
            print(json.dumps({"step": step, "tokens_per_s": round(speeds[-1], 1),
                              "processor_s": time.process_time() - processor_start, "loss": loss}),
                  flush=True)
    if rank == 0:
        print(json.dumps(vars(options) | {
            "torch": torch.__version__,
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "median_tokens_per_s": round(statistics.median(speeds), 1),
            "best_tokens_per_s": round(max(speeds), 1),
        }), flush=True)
    if options.ranks > 1:
        distributed.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("layers", 4), ("heads", 4), ("width", 256), ("context", 256),
                          ("vocab", 256), ("steps", 10), ("warmup", 3)]:
        parser.add_argument("--" + name, type=int, default=default, help=f"({default})")
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank and step (default: 8)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--bf16-mode", choices=["autocast", "pure"], default="autocast",
                        help="pure: bfloat16 parameters and activations, float32 master copies")
    parser.add_argument("--adamw", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--ranks", type=int, default=1, help="number of ranks (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank (default: 1)")
    parser.add_argument("--data", help="file whose bytes are the tokens to train on (default: random tokens)")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--profile", action="store_true",
                        help="print the time of each operation instead; only with one rank")
    options = parser.parse_args()
    if options.data and options.vocab < 256:
        parser.error("--data is bytes: it needs --vocab 256 or more")
    if options.profile and options.ranks > 1:
        parser.error("--profile is for one rank")
    return options


def main():
    options = parse()
    if options.ranks == 1:
        train(0, options, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (options, os.path.join(folder, "rendezvous")),
                                    nprocs=options.ranks)


if __name__ == "__main__":
    main()
