#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Capture Q, K and V of a Hugging Face causal language model for attnreplay.

Runs the model over one prompt and writes the tensors layers.N.q, .k and .v, bf16,
[heads, tokens, head_dim], as safetensors; see attnreplay-capture(5).  Needs torch,
transformers and safetensors.

The script wraps the function apply_rotary_pos_emb of the model's own module.  It receives Q and K
before RoPE, after any norm, and returns them after RoPE.  V is the output of v_proj.  --check makes
two comparisons.  Dense causal attention over the capture must equal the model's own input of
o_proj.  RoPE from the metadata must turn Q and K before RoPE into Q and K after it.
"""
import argparse
import gzip
import json
import math
import sys

from later import Later

torch, transformers, safetensors = map(Later, ("torch", "transformers", "safetensors.torch"))

ROWS = 512      # query rows of the check at a time
EVERYTHING = {"q_pre", "k_pre", "q_post", "k_post", "v", "o"}


def die(message):
    sys.exit("capture_hf: " + message)


def layer_list(text):
    """'0,4-7' as [0, 4, 5, 6, 7]."""
    layers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        layers.update(range(int(first), int(last or first) + 1))
    return sorted(layers)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True, metavar="DIR",
                   help="folder with config.json and weights")
    p.add_argument("--prompts", required=True, metavar="FILE",
                   help="token ids: a JSON list, or JSON lines with a key 'prompt'; may be gzipped")
    p.add_argument("--index", type=int, default=0, metavar="I",
                   help="number of the prompt in the file, from 0")
    p.add_argument("--tokens", type=int, metavar="N",
                   help="tokens to capture: the first N of the prompt (default: all of it)")
    p.add_argument("--generate", action="store_true",
                   help="if N is larger than the prompt, decode greedily up to N tokens")
    p.add_argument("--layers", type=layer_list, metavar="LIST", help="such as 0,4-7 (default: all)")
    p.add_argument("--rope", choices=("pre", "post"), default="post",
                   help="store Q and K before or after RoPE (default: post)")
    p.add_argument("--out", required=True, metavar="FILE", help="the safetensors file to write")
    p.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"),
                   help="data type of the model's computation (default: bfloat16)")
    p.add_argument("--device", default="cuda", help="torch device (default: cuda)")
    p.add_argument("--check", action="store_true", help="compare with the model's own attention")
    p.add_argument("--bound", type=float, default=0.02, metavar="X",
                   help="largest relative L2 error that passes the check (default: 0.02)")
    return p.parse_args()


def read_prompt(path, index):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        text = f.read()
    try:
        whole = json.loads(text)
        several = isinstance(whole, list) and whole and not isinstance(whole[0], int)
        prompts = whole if several else [whole]
    except json.JSONDecodeError:
        prompts = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not 0 <= index < len(prompts):
        die(f"{path} has {len(prompts)} prompts, no number {index}")
    ids = prompts[index]
    if isinstance(ids, dict):
        ids = ids["prompt"]
    if not ids or not all(isinstance(i, int) for i in ids):
        die(f"{path}: prompt {index} is no list of token ids")
    return ids


def sequence(model, args):
    """The token ids to capture, and the number of prompt tokens."""
    ids = read_prompt(args.prompts, args.index)
    n = args.tokens or len(ids)
    if n > len(ids) and not args.generate:
        die(f"the prompt has {len(ids)} tokens, not {n}; --generate decodes the rest")
    prompt = torch.tensor([ids[:n]], device=model.device)
    if n <= len(ids):
        return prompt, n
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                         min_new_tokens=n - len(ids), max_new_tokens=n - len(ids))
    return out, len(ids)


def attention_modules(model, wanted):
    found = {}
    for module in model.modules():
        if all(hasattr(module, a) for a in ("v_proj", "o_proj", "layer_idx")):
            found[module.layer_idx] = module
    if not found:
        die("no module of this model has v_proj, o_proj and layer_idx")
    layers = sorted(found) if wanted is None else wanted
    for layer in layers:
        if layer not in found:
            die(f"the model has no attention layer {layer}")
    return {layer: found[layer] for layer in layers}


class Recorder:
    """Keeps the wanted tensors of each layer: "q_pre", "k_pre", "q_post" and "k_post" (before and
    after RoPE), "v", and "o", the input of o_proj."""

    def __init__(self, modules, config, wanted):
        self.wanted = wanted
        self.data = {layer: {} for layer in modules}
        self.layer = None       # layer whose attention runs; None: not captured
        self.heads = config.num_attention_heads
        self.kv_heads = getattr(config, "num_key_value_heads", None) or self.heads
        self.hooks = []
        self.wrapped = {}
        for layer, module in modules.items():
            self.hook_layer(layer, module)
            self.wrap_rope(sys.modules[type(module).__module__])

    def hook_layer(self, layer, module):
        def enter(_module, _args, _kwargs):
            self.layer = layer

        def leave(_module, _args, _kwargs, _out):
            self.layer = None

        def value(_module, _args, out):
            self.keep(layer, "v", self.split(out, self.kv_heads))

        def output(_module, inputs):
            self.keep(layer, "o", self.split(inputs[0], self.heads))

        self.hooks += [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
            module.v_proj.register_forward_hook(value),
            module.o_proj.register_forward_pre_hook(output),
        ]

    def wrap_rope(self, namespace):
        if namespace in self.wrapped:
            return
        original = getattr(namespace, "apply_rotary_pos_emb", None)
        if original is None:
            die(f"{namespace.__name__} has no apply_rotary_pos_emb")

        def rope(q, k, *args, **kwargs):
            q_out, k_out = original(q, k, *args, **kwargs)
            if self.layer is not None:
                for name, x, heads in (("q_pre", q, self.heads), ("k_pre", k, self.kv_heads),
                                       ("q_post", q_out, self.heads),
                                       ("k_post", k_out, self.kv_heads)):
                    if x.dim() != 4 or x.shape[1] != heads:
                        die(f"RoPE of this model sees {list(x.shape)}, not "
                            f"[1, {heads}, tokens, size]")
                    self.keep(self.layer, name, x[0])
            return q_out, k_out

        self.wrapped[namespace] = original
        namespace.apply_rotary_pos_emb = rope

    def split(self, x, heads):
        """[1, tokens, heads * size] as [heads, tokens, size]."""
        return x.reshape(x.shape[-2], heads, -1).transpose(0, 1)

    def keep(self, layer, name, x):
        if name not in self.wanted:
            return
        if name in self.data[layer]:
            die(f"layer {layer} computed {name} twice in one pass; this model cannot be captured")
        self.data[layer][name] = x.detach().to("cpu", copy=True).contiguous()

    def remove(self):
        for hook in self.hooks:
            hook.remove()
        for namespace, original in self.wrapped.items():
            namespace.apply_rotary_pos_emb = original


def rope_parameters(config):
    """(theta, scaling or None).  theta is None for a type that this script does not compute."""
    p = getattr(config, "rope_parameters", None)
    p = dict(p or getattr(config, "rope_scaling", None) or {})
    theta = p.pop("rope_theta", None) or getattr(config, "rope_theta", None)
    kind = p.get("rope_type") or p.get("type") or "default"
    if kind not in ("default", "llama3") or theta is None or p.get("partial_rotary_factor", 1) != 1:
        return None, None
    return theta, p if kind == "llama3" else None


def rope_inv_freq(dim, theta, scaling):
    inv = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling is None:
        return inv
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * inv / (2 * math.pi)
    m = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - m) * inv / scaling["factor"] + m * inv


def rotate(x, theta, scaling):
    """RoPE at positions 0, 1, ...; pairs are (k, k + size / 2)."""
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * \
        rope_inv_freq(x.shape[2], theta, scaling)
    cos, sin = angle.cos().to(x.dtype).float(), angle.sin().to(x.dtype).float()
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q, k, v, device):
    """Dense causal attention in float32, a block of rows at a time."""
    q, k, v = (x.to(device).float() for x in (q, k, v))
    group = q.shape[0] // k.shape[0]
    n = q.shape[1]
    out = torch.empty(q.shape[0], n, v.shape[2], device=device)
    for head in range(q.shape[0]):
        for row in range(0, n, ROWS):
            end = min(row + ROWS, n)
            score = q[head, row:end] @ k[head // group, :end].T / math.sqrt(q.shape[2])
            key = torch.arange(end, device=device)
            score = score.masked_fill(key > key[row:, None], -torch.inf)
            out[head, row:end] = score.softmax(-1) @ v[head // group, :end]
    return out.cpu()


def relative_l2(got, want):
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm())


def check(data, config, args):
    theta, scaling = rope_parameters(config)
    worst = 0.0
    for layer, x in data.items():
        again = attention(x["q_post"], x["k_post"], x["v"], args.device)
        error = {"attention": relative_l2(again, x["o"])}
        if theta is not None:
            for name in "qk":
                error[f"rope {name}"] = relative_l2(rotate(x[name + "_pre"], theta, scaling),
                                                    x[name + "_post"])
        print(f"layer {layer}: relative L2 " + ", ".join(f"{k} {e:.2e}" for k, e in error.items()))
        # a NaN must fail the check
        worst = max(worst, *(e if e == e else math.inf for e in error.values()))
    if worst > args.bound:
        die(f"the capture is not what the model computed: {worst:.2e} is above {args.bound}")


def save(data, n_prompt, config, args):
    theta, scaling = rope_parameters(config)
    meta = {"model": args.model.rstrip("/").split("/")[-1], "n_prompt": str(n_prompt),
            "rope_applied": "true" if args.rope == "post" else "false"}
    if theta is not None:
        meta["rope_theta"] = repr(float(theta))
    if scaling is not None:
        meta["rope_scaling"] = json.dumps(scaling)
    tensors = {}
    for layer, x in data.items():
        for name, source in (("q", "q_" + args.rope), ("k", "k_" + args.rope), ("v", "v")):
            tensors[f"layers.{layer}.{name}"] = x[source].to(torch.bfloat16).contiguous()
    safetensors.save_file(tensors, args.out, metadata=meta)


def capture(args):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa")
    model = model.to(args.device).eval()
    config = model.config.get_text_config()
    if args.rope == "pre" and rope_parameters(config)[0] is None:
        die("this model's RoPE is not known to this script; use --rope post")
    modules = attention_modules(model, args.layers)
    ids, n_prompt = sequence(model, args)
    stored = {"q_" + args.rope, "k_" + args.rope, "v"}
    recorder = Recorder(modules, config, EVERYTHING if args.check else stored)
    # Run the body only: logits of a long prompt would not fit.  One pass over prompt and decoded
    # tokens gives the same as decoding one by one, because attention is causal.
    model.base_model(input_ids=ids, use_cache=False)
    recorder.remove()
    if args.check:
        check(recorder.data, config, args)
    save(recorder.data, n_prompt, config, args)
    print(f"{args.out}: {len(modules)} layers, {ids.shape[1]} tokens, {n_prompt} of them prompt")


def main():
    args = parse_args()
    with torch.inference_mode():
        capture(args)


if __name__ == "__main__":
    main()
