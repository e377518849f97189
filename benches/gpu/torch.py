"""What PyTorch does on the same GPU: a Llama of SmolLM2-135M's sizes with random weights, by transformers.

Prints tokens per second (median of 10 after 3) of training in bf16. `step` includes the clip and a
fused AdamW; `autocast` keeps f32 weights, as waltz keeps masters. The words `compiled` and `generate` ask for more."""

import statistics
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, head_dim=64, max_position_embeddings=2048, rope_theta=100000.0, tie_word_embeddings=True,
)


def median(work, rounds=10, warm_up=3):
    for _ in range(warm_up):
        work()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


class Adapted(torch.nn.Module):
    """A frozen linear layer with a low-rank adapter of rank 8."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        make = lambda *size: torch.nn.Parameter(torch.randn(*size, device="cuda", dtype=torch.bfloat16) * 0.02)
        self.a, self.b = make(8, linear.in_features), make(linear.out_features, 8)

    def forward(self, x):
        return self.linear(x) + 2.0 * (x @ self.a.T @ self.b.T)


def model(dtype, adapter=False):
    torch.manual_seed(0)
    made = LlamaForCausalLM(CONFIG).to("cuda", dtype)
    if adapter:
        for parameter in made.parameters():
            parameter.requires_grad = False
        for layer in made.model.layers:
            for part, names in ((layer.self_attn, "qkvo"), (layer.mlp, ("gate", "up", "down"))):
                for name in names:
                    setattr(part, f"{name}_proj", Adapted(getattr(part, f"{name}_proj")))
    return made


def train(what, count, length, dtype, adapter=False, update=False, autocast=False, compiled=False):
    made = model(dtype, adapter)
    trained = [parameter for parameter in made.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-5, fused=True) if update else None
    tokens = torch.randint(0, CONFIG.vocab_size, (count, length), device="cuda")
    forward = torch.compile(made) if compiled else made
    torch.cuda.reset_peak_memory_stats()

    def work():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            forward(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        if optimiser:
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
        for parameter in trained:
            parameter.grad = None

    seconds = median(work)
    memory = torch.cuda.max_memory_allocated() / 1e9
    print(f"| {what} | {count * length / seconds:.0f} | {seconds * 1e3:.1f} | {memory:.1f} |", flush=True)


def generate(count, length):
    made = model(torch.bfloat16).eval()
    prompts = torch.randint(0, CONFIG.vocab_size, (count, 64), device="cuda")
    options = dict(max_new_tokens=length, min_new_tokens=length, do_sample=True, top_k=0, pad_token_id=0)
    work = lambda: made.generate(prompts, attention_mask=torch.ones_like(prompts), **options)
    seconds = median(work, rounds=3, warm_up=1)
    print(f"| generate {count} x {length} | {count * length / seconds:.0f} | {seconds * 1e3:.1f} | |", flush=True)


if __name__ == "__main__":
    bf16, f32 = torch.bfloat16, torch.float32
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| what | tokens/s | ms | GB at most |\n|---|---|---|---|")
    train("full, 32 x 512, forward and back, bf16", 32, 512, bf16)
    train("full, 32 x 512, step, bf16", 32, 512, bf16, update=True)
    train("full, 32 x 512, step, autocast", 32, 512, f32, update=True, autocast=True)
    train("adapter, 32 x 512, step, bf16", 32, 512, bf16, adapter=True, update=True)
    train("full, 32 x 192, step, bf16", 32, 192, bf16, update=True)
    train("adapter, 32 x 192, step, bf16", 32, 192, bf16, adapter=True, update=True)
    if "compiled" in sys.argv:
        train("full, 32 x 512, step, bf16, compiled", 32, 512, bf16, update=True, compiled=True)
    if "generate" in sys.argv:
        generate(256, 128)
        generate(32, 128)
