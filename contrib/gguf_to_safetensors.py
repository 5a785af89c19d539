#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convert a model from GGUF to a Hugging Face folder: config.json, model.safetensors and, for
byte-level BPE, tokenizer.json.

    gguf_to_safetensors.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2/

attnreplay and transformers load the folder.  All tensors become bf16; quantised ones are
dequantised, so the folder holds the values of the GGUF file, not those before quantisation.
Architectures: llama (also Mistral's models of that name), qwen2 and qwen3, dense.  Refused are
others, experts, RoPE of a part of a head, files of several parts, and tensors that have no place.
Needs gguf and numpy.

GGUF of architecture llama pairs channels 2i and 2i + 1 of Q and K for RoPE, Hugging Face i and
i + head_dim / 2, so the rows of Q and K are put back in that order.
"""
import argparse
import json
import os
import sys

from later import Later
from safetensors_file import write

gguf, np = map(Later, ("gguf", "numpy"))

ARCHS = {       # name in GGUF: class
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Name in GGUF: name, sizes.  In a layer the names stand behind "blk.N." and "model.layers.N.".
OUTSIDE = {
    "token_embd.weight": ("model.embed_tokens.weight", "vocab hidden"),
    "output_norm.weight": ("model.norm.weight", "hidden"),
    "output.weight": ("lm_head.weight", "vocab hidden"),
}
LAYER = {
    "attn_norm.weight": ("input_layernorm.weight", "hidden"),
    "attn_q.weight": ("self_attn.q_proj.weight", "q hidden"),
    "attn_k.weight": ("self_attn.k_proj.weight", "kv hidden"),
    "attn_v.weight": ("self_attn.v_proj.weight", "kv hidden"),
    "attn_q.bias": ("self_attn.q_proj.bias", "q"),
    "attn_k.bias": ("self_attn.k_proj.bias", "kv"),
    "attn_v.bias": ("self_attn.v_proj.bias", "kv"),
    "attn_q_norm.weight": ("self_attn.q_norm.weight", "head_dim"),
    "attn_k_norm.weight": ("self_attn.k_norm.weight", "head_dim"),
    "attn_output.weight": ("self_attn.o_proj.weight", "hidden q"),
    "attn_output.bias": ("self_attn.o_proj.bias", "hidden"),
    "ffn_norm.weight": ("post_attention_layernorm.weight", "hidden"),
    "ffn_gate.weight": ("mlp.gate_proj.weight", "ffn hidden"),
    "ffn_up.weight": ("mlp.up_proj.weight", "ffn hidden"),
    "ffn_gate.bias": ("mlp.gate_proj.bias", "ffn"),
    "ffn_up.bias": ("mlp.up_proj.bias", "ffn"),
    "ffn_down.weight": ("mlp.down_proj.weight", "hidden ffn"),
    "ffn_down.bias": ("mlp.down_proj.bias", "hidden"),
}
QKV_BIAS = {"attn_q.bias", "attn_k.bias", "attn_v.bias"}
O_BIAS = {"attn_output.bias"}
MLP_BIAS = {"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"}
QK_NORM = {"attn_q_norm.weight", "attn_k_norm.weight"}
# RoPE of Llama 3.1 to 3.3 is a tensor of divisors in GGUF; only its factor differs between them.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# How a text is cut before BPE, by tokenizer.ggml.pre: a regular expression, or "digits" for single
# digits and then the expression of GPT-2, which ByteLevel has.
WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*" \
                       r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {
    "gpt-2": None,
    "llama-bpe": WORDS % r"\p{N}{1,3}",
    "qwen2": WORDS % r"\p{N}",
    "smollm": "digits",
}
CONTROL, USER_DEFINED = 3, 4    # values of tokenizer.ggml.token_type


class Refused(Exception):
    pass


class Model:
    """The metadata of a GGUF file, its sizes and its tensors by name."""

    def __init__(self, path):
        try:
            self.reader = gguf.GGUFReader(path)
        except (ValueError, IndexError) as e:
            raise Refused(f"no GGUF file, or cut off: {e}") from None
        self.arch = self.get("general.architecture")
        if self.arch not in ARCHS:
            raise Refused(f"architecture '{self.arch}' is not known; known are " + ", ".join(ARCHS))
        if self.get("split.count", 1) > 1:
            raise Refused("this is one part of several; merge them with llama.cpp's gguf-split")
        if self.own("expert_count", 0):
            raise Refused("models with experts are not converted")
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.layers = self.own("block_count")
        self.heads = self.whole("attention.head_count")
        self.kv_heads = self.whole("attention.head_count_kv", self.heads)
        hidden, ffn = self.whole("embedding_length"), self.whole("feed_forward_length")
        dim = self.own("attention.key_length", hidden // self.heads)
        if self.own("rope.dimension_count", dim) != dim or \
                self.own("attention.value_length", dim) != dim:
            raise Refused("heads of different sizes, or RoPE of a part of a head, are not "
                          "converted")
        self.sizes = {"hidden": hidden, "ffn": ffn, "head_dim": dim, "q": self.heads * dim,
                      "kv": self.kv_heads * dim,
                      "vocab": int(self.tensor("token_embd.weight").shape[1])}

    def get(self, key, *default):
        field = self.reader.get_field(key)
        if field is None and not default:
            raise Refused(f"has no key '{key}'")
        return default[0] if field is None else field.contents()

    def own(self, key, *default):
        return self.get(f"{self.arch}.{key}", *default)

    def whole(self, key, *default):
        value = self.own(key, *default)
        if not isinstance(value, int):
            raise Refused(f"'{self.arch}.{key}' differs between layers")
        return value

    def tensor(self, name):
        if name not in self.tensors:
            raise Refused(f"has no tensor '{name}'")
        return self.tensors[name]

    def has(self, names):
        """Whether the first layer has a tensor of these names; then each layer must have all."""
        return any(f"blk.0.{name}" in self.tensors for name in names)


# ---- config.json ----

def real(x):
    """GGUF keeps fp32: the shortest decimal number for it."""
    return float(f"{x:.7g}")


def llama3_scaling(divisors, dim, theta):
    """rope_scaling of the divisors of a tensor rope_freqs.weight."""
    scaling = {"rope_type": "llama3", "factor": float(divisors.max()), **LLAMA3}
    turns = LLAMA3["original_max_position_embeddings"] / (2 * np.pi) * \
        theta ** (-np.arange(0, dim, 2) / dim)
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    want = 1 / (kept + (1 - kept) / scaling["factor"])
    if divisors.shape != want.shape or not np.allclose(divisors, want, rtol=1e-3):
        raise Refused("the scaling of RoPE in tensor 'rope_freqs.weight' is not Llama 3's")
    return scaling


def rope_scaling(m, theta):
    kind = m.own("rope.scaling.type", "none")
    if "rope_freqs.weight" in m.tensors:
        t = m.tensor("rope_freqs.weight")
        return llama3_scaling(gguf.dequantize(t.data, t.tensor_type).ravel(), m.sizes["head_dim"],
                              theta)
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise Refused(f"RoPE of type '{kind}' is not converted; known are linear and yarn")
    scaling = {"rope_type": kind, "factor": real(m.own("rope.scaling.factor"))}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = m.own("rope.scaling.original_context_length")
        for key, name in (("attn_factor", "attention_factor"), ("yarn_attn_factor",
                          "attention_factor"), ("yarn_beta_fast", "beta_fast"),
                          ("yarn_beta_slow", "beta_slow")):
            if m.own("rope.scaling." + key, None) is not None:
                scaling[name] = real(m.own("rope.scaling." + key))
    return scaling


def config(m):
    theta = real(m.own("rope.freq_base", 10000.0))
    c = {
        "architectures": [ARCHS[m.arch]],
        "model_type": m.arch,
        "hidden_size": m.sizes["hidden"],
        "intermediate_size": m.sizes["ffn"],
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.sizes["head_dim"],
        "hidden_act": "silu",
        "vocab_size": m.sizes["vocab"],
        "max_position_embeddings": m.own("context_length"),
        "rms_norm_eps": real(m.own("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in m.tensors,
        "torch_dtype": "bfloat16",
    }
    scaling = rope_scaling(m, theta)
    if scaling:
        c["rope_scaling"] = scaling
    if m.arch != "qwen2":
        c["attention_bias"] = m.has(QKV_BIAS)
    if m.arch == "llama":
        c["mlp_bias"] = m.has(MLP_BIAS)
    for key in ("bos", "eos"):
        if m.get(f"tokenizer.ggml.{key}_token_id", None) is not None:
            c[f"{key}_token_id"] = m.get(f"tokenizer.ggml.{key}_token_id")
    return c


# ---- tensors ----

def layer_names(m, c):
    """Names in LAYER that each layer of this model has."""
    bias = c.get("attention_bias", False)
    absent = set()
    for names, here in ((QKV_BIAS, bias or m.arch == "qwen2"), (O_BIAS, bias),
                        (MLP_BIAS, c.get("mlp_bias", False)), (QK_NORM, m.arch == "qwen3")):
        absent |= set() if here else names
    return [name for name in LAYER if name not in absent]


def halves(rows, heads):
    """Rows of Q or K, whose pairs are neighbours, with pairs half a head apart."""
    head = rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1)
    return head.swapaxes(1, 2).reshape(rows.shape)


def bf16(x):
    """Bytes of an fp32 array, rounded to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def data(m, name, heads):
    """Bytes of a tensor.  heads: of a tensor whose rows were permuted, else None."""
    t = m.tensor(name)
    x = gguf.dequantize(t.data, t.tensor_type)
    if not np.isfinite(x).all():
        raise Refused(f"tensor '{name}' has a value that is not finite")
    return bf16(halves(x, heads) if heads else x)


def place(m, name, to, sizes, heads=None):
    """A tensor as write() wants it."""
    shape = [m.sizes[s] for s in sizes.split()]
    got = [int(n) for n in reversed(m.tensor(name).shape)]
    if got != shape:
        raise Refused(f"tensor '{name}' is {got}; want {shape}")
    return to, "BF16", shape, lambda: data(m, name, heads)


def tensors(m, c):
    placed, out = {"rope_freqs.weight"}, []
    for name, (to, sizes) in OUTSIDE.items():
        if name != "output.weight" or not c["tie_word_embeddings"]:
            out.append(place(m, name, to, sizes))
            placed.add(name)
    permuted = {"attn_q": m.heads, "attn_k": m.kv_heads} if m.arch == "llama" else {}
    for i in range(m.layers):
        for name in layer_names(m, c):
            to, sizes = LAYER[name]
            out.append(place(m, f"blk.{i}.{name}", f"model.layers.{i}.{to}", sizes,
                             permuted.get(name.split(".")[0])))
            placed.add(f"blk.{i}.{name}")
    for name in m.tensors:
        if name not in placed:
            raise Refused(f"tensor '{name}' has no place in a model of this architecture")
    return out


# ---- tokenizer.json ----

def pre_tokenizer(cut):
    def byte_level(use_regex):
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                "use_regex": use_regex}
    if cut is None:
        return byte_level(True)
    if cut == "digits":
        first = {"type": "Digits", "individual_digits": True}
    else:
        first = {"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated",
                 "invert": False}
    return {"type": "Sequence", "pretokenizers": [first, byte_level(cut == "digits")]}


def begin_with(token, number):
    """The step that puts a token before each text."""
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [special, {"Sequence": {"id": "A",
            "type_id": 0}}], "pair": [special, {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}}}


def tokenizer(m):
    """(tokenizer.json, None), or (None, why it cannot be made)."""
    model, pre = m.get("tokenizer.ggml.model", "none"), m.get("tokenizer.ggml.pre", "default")
    if model != "gpt2":
        return None, f"its tokenizer is of kind '{model}', not byte-level BPE"
    if pre not in CUTS:
        return None, f"it cuts texts as '{pre}', which is not known"
    tokens, kinds = m.get("tokenizer.ggml.tokens"), m.get("tokenizer.ggml.token_type", [])
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": kind == CONTROL}
             for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)]
    first = m.get("tokenizer.ggml.bos_token_id", None)
    if not m.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"):
        first = None
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": pre_tokenizer(CUTS[pre]),
        "post_processor": None if first is None else begin_with(tokens[first], first),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": pre == "llama-bpe",
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": m.get("tokenizer.ggml.merges")},
    }, None


# ---- the whole ----

def save_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)
        f.write("\n")


def convert(path, out):
    m = Model(path)
    c = config(m)
    placed = tensors(m, c)
    text, why_not = tokenizer(m)
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "model.safetensors"), placed)
    if text:
        save_json(os.path.join(out, "tokenizer.json"), text)
    save_json(os.path.join(out, "config.json"), c)
    kinds = sorted({t.tensor_type.name for t in m.tensors.values()})
    print(f"{out}: {len(placed)} tensors in bf16, from {', '.join(kinds)}")
    if why_not:
        print(f"no tokenizer.json: {why_not}")


def main():
    p = argparse.ArgumentParser(description="Convert a model from GGUF to a Hugging Face folder.")
    p.add_argument("input", metavar="IN.gguf")
    p.add_argument("output", metavar="DIR", help="folder to write; it is made")
    a = p.parse_args()
    try:
        convert(a.input, a.output)
    except (OSError, NotImplementedError, Refused) as e:
        sys.exit(f"gguf_to_safetensors: {a.input}: {e}")


if __name__ == "__main__":
    main()
