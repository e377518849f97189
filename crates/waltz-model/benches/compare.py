"""Compares waltz with llama.cpp on the same Q8_0 weights, in turns, and prints medians and their ratio.

    pip install numpy && CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python
    cargo bench -p waltz-model --no-run          # prints the bench's path
    WALTZ_MODELS=FOLDER python compare.py BENCH 20 [THREADS]

llama.cpp gets a Q8_0 file that it makes itself from the same GGUF. It is timed around llama_decode alone, with
nothing chosen from the logits; waltz is timed through its room with everything. Rates are given by the clock and
per second of CPU time: the clock means something only on an idle machine, because both spin while they wait.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

import llama_cpp

PROMPT, START, WRITTEN, BATCH = 256, 16, 96, 16


def tokens(count, seed):
    return [1000 + (index * 7919 + seed * 104729) % 40000 for index in range(count)]


def times():
    return time.perf_counter(), time.process_time()


def rates(count, started):
    """Tokens per second by the clock and by the CPU."""
    return tuple(count / (now - then) for now, then in zip(times(), started))


class Llama:
    """llama.cpp through its C functions."""

    def __init__(self, source, threads):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "q8.gguf")
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype, options.allow_requantize, options.pure = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, True, True
        assert llama_cpp.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(options)) == 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 4096, 512, 512, BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(self, rows):
        """One step; rows are (token, position, sequence, whether logits are wanted)."""
        self.batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[index] = token
            self.batch.pos[index] = position
            self.batch.n_seq_id[index] = 1
            self.batch.seq_id[index][0] = sequence
            self.batch.logits[index] = wanted
        assert llama_cpp.llama_decode(self.context, self.batch) == 0
        llama_cpp.llama_synchronize(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def prompt(self, seed):
        self.clear()
        text = tokens(PROMPT, seed)
        rows = [(token, at, 0, at == PROMPT - 1) for at, token in enumerate(text)]
        started = times()
        self.decode(rows)
        return rates(PROMPT, started)

    def write(self, count):
        self.clear()
        rows = []
        for sequence in range(count):
            rows += [(token, at, sequence, at == START - 1) for at, token in enumerate(tokens(START, sequence))]
        self.decode(rows)
        started = times()
        for step in range(WRITTEN - 1):
            self.decode([(1000 + step * 37 + sequence, START + step, sequence, 1) for sequence in range(count)])
        return rates(count * (WRITTEN - 1), started)


def main():
    bench, rounds = sys.argv[1], int(sys.argv[2])
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else os.cpu_count()
    source = os.path.join(os.environ["WALTZ_MODELS"], "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama = Llama(source, threads)
    llama.prompt(0)
    names = [f"prompt_{PROMPT}", "decode_1", f"decode_{BATCH}"]
    ours, theirs = {name: [] for name in names}, {name: [] for name in names}
    environment = {**os.environ, "THREADS": str(threads)}
    for round_number in range(rounds):
        output = subprocess.run([bench, "2"], env=environment, capture_output=True, text=True, check=True).stdout
        # The first round of a process warms up; the second counts.
        for name in names:
            lines = [line.split() for line in output.splitlines() if line.startswith(name + " ")]
            ours[name].append((float(lines[-1][1]), float(lines[-1][3])))
        theirs[names[0]].append(llama.prompt(round_number))
        theirs[names[1]].append(llama.write(1))
        theirs[names[2]].append(llama.write(BATCH))
        latest = " ".join(f"{name} {ours[name][-1][1]:.0f}/{theirs[name][-1][1]:.0f}" for name in names)
        print(f"round {round_number}, per CPU second: {latest}", file=sys.stderr, flush=True)
    for index, unit in enumerate(["second", "CPU second"]):
        print(f"{rounds} rounds, {threads} threads, tokens per {unit}: median (quartiles)")
        for name in names:
            report(name, [rate[index] for rate in ours[name]], [rate[index] for rate in theirs[name]])


def report(name, ours, theirs):
    def spread(values):
        low, middle, high = statistics.quantiles(values, n=4)
        return f"{middle:7.1f} ({low:.1f} to {high:.1f})"

    ratio = statistics.median(one / other for one, other in zip(ours, theirs))
    best = max(ours) / max(theirs)
    print(f"{name:11} waltz {spread(ours)}  llama.cpp {spread(theirs)}  ratio {ratio:.2f}, of the best {best:.2f}")


main()
