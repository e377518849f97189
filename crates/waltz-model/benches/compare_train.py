"""Compares training in waltz with PyTorch on the same weights and batch, in turns, and prints medians and their ratio.

    pip install torch gguf numpy
    cargo bench -p waltz-model --no-run          # prints the bench's path
    WALTZ_MODELS=FOLDER python compare_train.py BENCH 5 [THREADS] [MODE...]

Modes are `full` and `lora` (8 texts of 256 tokens, f32, AdamW; LoRA of rank 8 on all seven projections). Every round
is a process of its own that takes three steps, of which the last counts: memory is that process's peak. Rates are given
by the clock and per second of CPU time: the clock means something only on an idle machine.
"""

import os
import statistics
import subprocess
import sys
import time

TEXTS, LENGTH, STEPS = 8, 256, 3


def torch_round(mode):
    """What the bench prints, for PyTorch."""
    import torch
    import torch.nn.functional as F

    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures"))
    from torch_llama import Llama

    torch.set_num_threads(int(os.environ["THREADS"]))
    torch.manual_seed(1)
    model = Llama(source())

    def make(name, shape):
        bound = shape[1] ** -0.5
        return torch.zeros(shape) if name.endswith(".b") else torch.empty(shape).uniform_(-bound, bound)

    trained = model.train_all() if mode == "full" else model.train_lora(8, 16.0, make)
    optimiser = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0, fused=True)
    tokens = torch.tensor([
        [1000 + (index * 7919 + text * 104729) % 40000 for index in range(LENGTH)] for text in range(TEXTS)
    ])
    for _ in range(STEPS):
        wall, cpu = time.perf_counter(), time.process_time()
        logits = model(tokens)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        value = loss.item()
        loss.backward()
        del logits, loss
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        with open("/proc/self/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
        count = TEXTS * LENGTH
        print(f"{mode} {count / wall:.1f} tokens/s {count / cpu:.1f} tokens/cpu-s {peak:.0f} MiB loss {value:.4f}")


def source():
    return os.path.join(os.environ["WALTZ_MODELS"], "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


def last(command, environment):
    """Rate by the clock, rate per CPU second, MiB and loss of a process's last step."""
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    words = output.strip().splitlines()[-1].split()
    return float(words[1]), float(words[3]), float(words[5]), float(words[8])


def main():
    bench, rounds = sys.argv[1], int(sys.argv[2])
    threads = sys.argv[3] if len(sys.argv) > 3 else str(os.cpu_count())
    modes = sys.argv[4:] or ["full", "lora"]
    environment = {**os.environ, "THREADS": threads}
    found = {mode: ([], []) for mode in modes}
    for round_number in range(rounds):
        for mode in modes:
            ours = last([bench, mode, str(STEPS)], environment)
            theirs = last([sys.executable, __file__, "--torch", mode], environment)
            found[mode][0].append(ours)
            found[mode][1].append(theirs)
            print(f"round {round_number} {mode}: waltz {ours}, PyTorch {theirs}", file=sys.stderr, flush=True)
    print(f"{rounds} rounds, {threads} threads, {TEXTS} texts of {LENGTH} tokens: medians")
    for mode, (ours, theirs) in found.items():
        for index, unit in enumerate(["tokens/s", "tokens/CPU-s", "MiB"]):
            middle = [statistics.median(run[index] for run in runs) for runs in (ours, theirs)]
            ratio = statistics.median(one[index] / other[index] for one, other in zip(ours, theirs))
            print(f"{mode:5} {unit:12} waltz {middle[0]:8.1f}  PyTorch {middle[1]:8.1f}  ratio {ratio:.2f}")
        print(f"{mode:5} loss         waltz {ours[0][3]:8.4f}  PyTorch {theirs[0][3]:8.4f}")


if sys.argv[1] == "--torch":
    torch_round(sys.argv[2])
else:
    main()
