#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare a forward pass of attnreplay with the one of Hugging Face transformers.

    compare_hf.py models DIR [--head-dim N]
        make small random models, one folder each, with prompts.jsonl: Llama, Mistral, Qwen2, Qwen3
        and Gemma 3; RoPE with llama3, yarn and linear scaling over prompts longer than the original
        context; with and without biases and tied embeddings
    tests/forward-dump cpu|cuda MODEL_DIR PROMPTS OURS   (make check builds it)
        write the pass over the first prompt of a file as safetensors
    compare_hf.py compare MODEL_DIR... [--prompts PROMPTS] [--ours OURS]
        run the framework over that prompt, in fp32 and in bf16 with eager attention, and print for
        each layer the distance of ours to fp32 beside the framework's own bf16 distance.  Without
        the options the files are prompts.jsonl and ours.safetensors in each folder

A distance is the relative L2 of a token's vector, in the root mean square over all tokens; the last
hidden state is the last norm's input.  Ours passes if no distance is above 1.5 times the
framework's, and if the most likely token is that of fp32 wherever the two best are clearly apart.
Clearly: by more than twice the error that the pass may have, which is 1.5 times the framework's
largest error of that token's logits.
Needs torch, transformers and safetensors.
"""
import argparse
import gzip
import json
import os
import sys

from later import Later

torch, transformers, safetensors = map(Later, ("torch", "transformers", "safetensors.torch"))


def die(message):
    sys.exit("compare_hf: " + message)


# ---- small random models ----

TOKENS, ORIGINAL = 333, 64      # of a prompt; context before scaling
SIZE = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
        "max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": ORIGINAL}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
        "original_max_position_embeddings": ORIGINAL}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
WINDOWS = {"sliding_window": 48, "layer_types": ["sliding_attention", "full_attention"] * 2}
MODELS = {      # name: class of the configuration, what differs from SIZE
    "llama": ("Llama", {"rope_parameters": PLAIN}),
    "llama-llama3-bias": ("Llama", {"rope_parameters": LLAMA3, "attention_bias": True,
                                    "mlp_bias": True}),
    "llama-yarn-tied": ("Llama", {"rope_parameters": YARN, "tie_word_embeddings": True,
                                  "head_dim": 32, "num_key_value_heads": 4}),
    "mistral-window": ("Mistral", {"rope_parameters": PLAIN, "sliding_window": 48}),
    "qwen2-yarn": ("Qwen2", {"rope_parameters": YARN, "num_key_value_heads": 1}),
    "qwen2-tied": ("Qwen2", {"rope_parameters": PLAIN, "tie_word_embeddings": True}),
    "qwen3-llama3": ("Qwen3", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "qwen3-yarn-tied": ("Qwen3", {"rope_parameters": YARN, "head_dim": 32,
                                  "tie_word_embeddings": True}),
    "gemma3-linear": ("Gemma3Text", {**WINDOWS, "hidden_size": 80, "head_dim": 32,
                                     "query_pre_attn_scalar": 24,
                                     "rope_parameters": {"full_attention": LINEAR,
                                                         "sliding_attention": PLAIN}}),
}


def randomise(model, zero_based_norms):
    """Weights that make attention and biases matter; those of transformers are small or 0."""
    for name, p in model.named_parameters():
        r = torch.randn(p.shape)
        if name.endswith("bias"):
            p.copy_(0.3 * r)
        elif p.dim() == 1:
            p.copy_(0.2 * r + (0 if zero_based_norms else 1))
        elif "embed_tokens" in name:
            p.copy_(r)
        else:
            p.copy_(r * p.shape[1] ** -0.5 * (1.5 if "q_proj" in name or "k_proj" in name else 1))


def make_models(args):
    for i, (name, (kind, keys)) in enumerate(MODELS.items()):
        torch.manual_seed(i)
        if args.head_dim:
            keys = {**keys, "head_dim": args.head_dim}
        config = getattr(transformers, kind + "Config")(**{**SIZE, **keys})
        model = transformers.AutoModelForCausalLM.from_config(config)
        randomise(model, kind == "Gemma3Text")
        folder = os.path.join(args.dir, name)
        model.to(torch.bfloat16).save_pretrained(folder)
        ids = torch.randint(SIZE["vocab_size"], (TOKENS,)).tolist()
        with open(os.path.join(folder, "prompts.jsonl"), "w") as f:
            f.write(json.dumps(ids) + "\n")
    print(f"{args.dir}: {len(MODELS)} models")


# ---- the framework ----

def first_prompt(path):
    """Token ids of the first line: a JSON list, or an object with the list as 'prompt'."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        line = next((line for line in f if line.strip()), "")
    try:
        ids = json.loads(line)
    except json.JSONDecodeError:
        ids = None
    if isinstance(ids, dict):
        ids = ids.get("prompt")
    if not isinstance(ids, list) or not ids:
        die(f"{path}: the first line is no prompt")
    return ids


def run(folder, ids, kind, device):
    """Hidden states, the input of each layer and of the last norm, and logits."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=kind,
                                                              attn_implementation="eager")
    model = model.to(device).eval()
    body, hidden = model.base_model, []

    def keep(_module, inputs, keywords):
        hidden.append((inputs[0] if inputs else keywords["hidden_states"])[0].float().cpu())

    for module in [*body.layers, body.norm]:
        module.register_forward_pre_hook(keep, with_kwargs=True)
    logits = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits
    return hidden, logits[0].float().cpu()


# ---- the comparison ----

def distance(x, want):
    if not torch.isfinite(x).all():
        return float("inf")
    x, want = x.double(), want.double()
    return float(((x - want).norm(dim=-1) / want.norm(dim=-1)).square().mean().sqrt())


def ratio(ours, theirs):
    if theirs == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / theirs


def argmax_line(ours, theirs, want, bound):
    """How often the most likely token is that of fp32; and whether it is where it must be."""
    best = want.topk(2, -1)
    clear = best.values[:, 0] - best.values[:, 1] > \
        2 * bound * (theirs - want).abs().amax(-1)
    same = ours.argmax(-1) == best.indices[:, 0]
    framework = theirs.argmax(-1) == best.indices[:, 0]
    n = len(same)
    wrong = int((clear & ~same).sum())
    text = f"argmax of fp32: ours {int(same.sum())} of {n}, framework {int(framework.sum())}; " \
           f"where clear: ours {int((clear & same).sum())} of {int(clear.sum())}"
    return text, wrong == 0


def compare_model(folder, prompts, path, args):
    """Whether the pass in the file path is close enough."""
    ids, ours = first_prompt(prompts), safetensors.load_file(path)
    want, want_logits = run(folder, ids, torch.float32, args.device)
    theirs, their_logits = run(folder, ids, torch.bfloat16, args.device)
    rows = [(f"hidden.{i}", theirs[i], want[i]) for i in range(len(want))]
    rows.append(("logits", their_logits, want_logits))
    if set(ours) != {name for name, _, _ in rows}:
        die(f"{path}: has not hidden.0 to hidden.{len(want) - 1} and logits")
    print(f"{'':12}{'ours':>12}{'framework':>12}{'ratio':>8}   {folder}, {len(ids)} tokens")
    worst = 0.0
    for name, their, fp32 in rows:
        if ours[name].shape != fp32.shape:
            die(f"{path}: {name} is {list(ours[name].shape)}, not {list(fp32.shape)}")
        mine, other = distance(ours[name].float(), fp32), distance(their, fp32)
        worst = max(worst, ratio(mine, other))
        print(f"{name:12}{mine:12.3e}{other:12.3e}{ratio(mine, other):8.3f}")
    text, same = argmax_line(ours["logits"].float(), their_logits, want_logits, args.bound)
    passed = worst <= args.bound and same
    print(f"{text}\n{'passed' if passed else 'FAILED'}: largest ratio {worst:.3f}, "
          f"asked at most {args.bound}")
    return passed


def compare(args):
    passed = [compare_model(folder, args.prompts or os.path.join(folder, "prompts.jsonl"),
                            args.ours or os.path.join(folder, "ours.safetensors"), args)
              for folder in args.model]
    sys.exit(0 if all(passed) else 1)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sub = p.add_subparsers(required=True)
    m = sub.add_parser("models", help="make small random models")
    m.add_argument("dir", metavar="DIR")
    m.add_argument("--head-dim", type=int, metavar="N",
                   help="heads of N channels in all models: kernels on a GPU have some sizes only")
    m.set_defaults(work=make_models)
    c = sub.add_parser("compare", help="compare a pass of attnreplay with the framework's")
    c.add_argument("model", metavar="MODEL_DIR", nargs="+")
    c.add_argument("--prompts", metavar="FILE", help="JSON lines, may be gzipped")
    c.add_argument("--ours", metavar="FILE", help="what forward-dump wrote")
    c.add_argument("--bound", type=float, default=1.5, metavar="X",
                   help="largest ratio of distances that passes (default: 1.5)")
    c.add_argument("--device", default="cpu", help="torch device (default: cpu)")
    c.set_defaults(work=compare)
    args = p.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with torch.inference_mode():
            args.work(args)
    except OSError as e:
        die(str(e))


if __name__ == "__main__":
    main()
