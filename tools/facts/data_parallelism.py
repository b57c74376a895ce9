"""Facts about data parallelism."""
import re

from fact import Fact, Figure, same_losses

SECTION = "Data parallelism"
GPT = ("tutti train --data text --model gpt2 --layers 2 --width 32 --heads 2 --context 32 --batch 16 --steps 6 "
       "--micro-batch 4")


def trained(name, options, start=GPT):
    return f"{start} {options} --json {name}.jsonl"


def digests(out):
    return len({worker["digest"] for worker in out.lines("digest.jsonl")[-1]["workers"]})


def falls(name):
    """Returns a reader of a run's last loss divided by its first one."""
    return lambda out: out.losses(name)[-1] / out.losses(name)[0]


STRAGGLER = ("tutti simulate train --topology fat-tree:hosts=2,gpus=8 --forward-us 4000 --backward-us 8000 --gradient-bytes 100M "
             "--sync allreduce,ps,ssp:3,async --updates 100 --straggler 3:x4")
# As many updates: an asynchronous step of 4 workers is 4.
EFFICIENCY = "; ".join(trained(name, f"-n 4 --lr 0.002 --steps {steps} --warmup {steps // 5} --sync {way}") for name, way, steps in
                       (("sync", "allreduce", 60), ("async", "async", 15), ("ssp", "ssp:3", 60)))


def own_values(way):
    command = trained("own", f"-n 4 --steps 40 --lr 0.003 --sync {way}")
    return Figure(f"last loss over the first, {way}", command, falls("own.jsonl"), most=0.8)


def rate(way):
    return lambda out: out.number(rf"^{way} +[\d.]+ +([\d.]+)")


BATCHES = "tutti train --data text --model gpt2 --layers 2 --width 32 --heads 2 --context 32 --micro-batch 8 -n 2 --lr 0.002"
SCALED = "; ".join(f"{BATCHES} --batch {batch} --steps {2048 // batch} --rate-scaling sqrt --base-batch 8 --warmup {256 // batch} "
                   f"--json {batch}.jsonl" for batch in (8, 64))
PLAIN = f"{BATCHES} --batch 64 --steps 32 --warmup 4 --json plain.jsonl"


def kept(out):
    return out.lines("64.jsonl")[-1]["validation_loss"] / out.lines("8.jsonl")[-1]["validation_loss"]


SWEEP = ('python3 $TREE/bench/large_batch.py --tutti "$(which tutti)" --data text --batches 8 64 512 --samples 2048 '
         '--rules none linear sqrt sqrt+decay lars lamb --out losses.svg')


def swept(batch, rule):
    """Returns a reader of the validation loss for a batch size and a learning-rate rule."""
    def read(out):
        column = re.search(r"^ batch  steps +(.*)$", out.text, re.M)[1].split().index(rule)
        row = re.search(rf"^ *{batch} +\d+ +(.*)$", out.text, re.M)[1].split()
        return float(row[column])
    return read


def noise_scale(out):
    return [line["noise_scale"] for line in out.lines("noise.jsonl") if "noise_scale" in line][-1]


FACTS = [
    Fact(SECTION, "Synchronous SGD", "identical parameters on all ranks; equals one process with the whole batch", [
        Figure("different digests of 4 ranks' parameters", trained("digest", "-n 4 --optimizer sgd --digest"), digests, want=1),
        Figure("largest relative difference of losses, 4 ranks and 1",
               trained("one", "-n 1 --optimizer sgd") + "; " + trained("four", "-n 4 --optimizer sgd"),
               same_losses("four.jsonl", "one.jsonl"), most=1e-7),
        Figure("the same, in deterministic mode", "export TUTTI_DETERMINISTIC=1; " + trained("one", "-n 1 --optimizer sgd") + "; "
               + trained("four", "-n 4 --optimizer sgd"), same_losses("four.jsonl", "one.jsonl"), want=0)]),
    Fact(SECTION, "Buckets, summed beside backward", "measured overlap", [
        Figure(f"share of the time waiting, {name}", trained("overlap", f"-n 2 --width 128 --steps 20 {option}"),
               lambda out: out.lines("overlap.jsonl")[-1]["communication_share"], least=0, most=1, small=False)
        for name, option in (("with overlap", ""), ("without", "--no-overlap"))]),
    Fact(SECTION, "Asynchronous, bounded staleness (DistBelief, Bosen, SSP)", "no waiting for stragglers, lower efficiency", [
        Figure("updates/s of async over allreduce, one of 16 ranks 4 times as slow", STRAGGLER,
               lambda out: rate("async")(out) / rate("allreduce")(out), least=3),
        Figure("largest staleness of ssp:3, steps", EFFICIENCY, lambda out: max(
            worker["staleness"]["largest"] for worker in out.lines("ssp.jsonl")[-1]["workers"]), most=3),
        *(Figure(f"loss of {way} over that of synchronous training, as many updates", EFFICIENCY,
                 lambda out, way=way: out.lines(f"{way}.jsonl")[-1]["validation_loss"]
                 / out.lines("sync.jsonl")[-1]["validation_loss"], least=0.98, most=1.1) for way in ("ssp", "async"))]),
    Fact(SECTION, "Federated, local SGD, pipelined, decentralised", "options for research; convergence shown", [
        own_values(way) for way in ("local:4", "diloco:5", "gossip:ring", "fedavg:4", "easgd:4")]),
    Fact(SECTION, "Gradient accumulation", "equals the large batch", [
        Figure("largest relative difference of losses, 8 micro-batches and 1",
               trained("one", "-n 1 --micro-batch 16") + "; " + trained("eight", "-n 1 --micro-batch 2"),
               same_losses("eight.jsonl", "one.jsonl"), most=1e-8)]),
    Fact(SECTION, "Distributed sampler", "disjoint, complete, reshuffled each epoch; also when resumed", [
        Figure("the check of 3 epochs of 10 000 samples fails (4 ranks, resumed on 5)",
               "tutti data 10000 --epoch-check -n 4 --batch 96", lambda out: int("\nok: each sample once" not in out.text),
               want=0)]),
    Fact(SECTION, "Large batch: scaling rules, warm-up, LARS, LAMB", "loss kept as the batch grows, up to the critical size", [
        Figure("validation loss of batch 64 over that of 8, as many samples, sqrt scaling", SCALED, kept, most=1.25),
        Figure("that of batch 64 without scaling, over with it", f"{SCALED}; {PLAIN}", lambda out: out.lines(
            "plain.jsonl")[-1]["validation_loss"] / out.lines("64.jsonl")[-1]["validation_loss"], least=1.1),
        *(Figure(f"loss of batch {batch} by {rule} over that of batch 8", SWEEP,
                 lambda out, batch=batch, rule=rule: swept(batch, rule)(out) / swept(8, "none")(out), least=0.9, most=2.5, small=False)
          for batch in (64, 512) for rule in ("none", "linear", "sqrt", "sqrt+decay", "lars", "lamb"))],
        "partly: 8 to 512 of one small model here, 8 to 4096 of a perceptron in training/README.md; ImageNet in an hour takes 256 GPUs"),
    Fact(SECTION, "Critical batch size, gradient noise scale", "estimated during a run", [
        Figure("noise scale after 40 steps, samples", trained("noise", "-n 2 --steps 40"), noise_scale, least=0.2, most=4)]),
]
