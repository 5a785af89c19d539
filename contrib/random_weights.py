#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the folder of a model with random weights, to measure times of any size without a download.

    random_weights.py config.json random-8b/

attnreplay run --weights and transformers load the folder: config.json and model.safetensors in
bf16.  Architectures: Llama, Mistral, Qwen2, Qwen3 and Gemma 3 (text), dense.  The magnitude of a
weight is between 2^-7 and 2^-5, its sign is random; norms multiply by 1 and biases are 0.  The same
--seed gives the same file.  What such a model says means nothing.
"""
import argparse
import json
import math
import os
import random
import shutil
import sys

from safetensors_file import write

ARCHS = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
         "Gemma3ForCausalLM"}
PIECE = 1 << 24  # bytes that are drawn at a time
# A bf16 is a sign, 8 bits of exponent and 7 of mantissa.  The high byte is sign and exponent but for
# its last bit: 0 0111100 or 1 0111100.  The low byte is free.
HIGH = bytes(0xBC if i & 1 else 0x3C for i in range(256))


def drawn(rng, n):
    out = bytearray(2 * n)
    for at in range(0, n, PIECE):
        some = min(PIECE, n - at)
        out[2 * at:2 * (at + some):2] = rng.randbytes(some)
        out[2 * at + 1:2 * (at + some):2] = rng.randbytes(some).translate(HIGH)
    return out


def tensors(config):
    """(name, shape, kind) of each tensor in order; kind: drawn, ones or zeros."""
    arch = config["architectures"][0]
    gemma, qwen3 = arch.startswith("Gemma3"), arch.startswith("Qwen3")
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    q, kv = heads * dim, (config.get("num_key_value_heads") or heads) * dim
    one = "zeros" if gemma else "ones"  # Gemma multiplies by 1 + w
    qkv_bias = arch.startswith("Qwen2") or config.get("attention_bias", False)
    o_bias = not arch.startswith("Qwen2") and config.get("attention_bias", False)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]

    yield "model.embed_tokens.weight", [config["vocab_size"], hidden], "drawn"
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, cols, bias in (
                ("self_attn.q_proj", q, hidden, qkv_bias),
                ("self_attn.k_proj", kv, hidden, qkv_bias),
                ("self_attn.v_proj", kv, hidden, qkv_bias),
                ("self_attn.o_proj", hidden, q, o_bias),
                ("mlp.gate_proj", ffn, hidden, config.get("mlp_bias")),
                ("mlp.up_proj", ffn, hidden, config.get("mlp_bias")),
                ("mlp.down_proj", hidden, ffn, config.get("mlp_bias"))):
            yield f"{at}{name}.weight", [rows, cols], "drawn"
            if bias:
                yield f"{at}{name}.bias", [rows], "zeros"
        for name in norms:
            yield f"{at}{name}.weight", [hidden], one
        if gemma or qwen3:
            yield f"{at}self_attn.q_norm.weight", [dim], one
            yield f"{at}self_attn.k_norm.weight", [dim], one
    yield "model.norm.weight", [hidden], one
    if not config.get("tie_word_embeddings", gemma):
        yield "lm_head.weight", [config["vocab_size"], hidden], "drawn"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("config", help="config.json of the model")
    p.add_argument("folder", help="folder to make")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    with open(a.config, encoding="utf-8") as f:
        config = json.load(f)
    if (config.get("architectures") or [None])[0] not in ARCHS:
        sys.exit(f"{a.config}: architectures: want one of {', '.join(sorted(ARCHS))}")
    rng = random.Random(a.seed)
    make = {"drawn": lambda n: drawn(rng, n), "ones": lambda n: b"\x80\x3f" * n,
            "zeros": lambda n: bytes(2 * n)}
    try:
        listed = [(name, "BF16", shape, lambda kind=kind, n=math.prod(shape): make[kind](n))
                  for name, shape, kind in tensors(config)]
    except KeyError as e:
        sys.exit(f"{a.config}: no {e}")
    try:
        os.makedirs(a.folder, exist_ok=True)
        write(os.path.join(a.folder, "model.safetensors"), listed)
        shutil.copyfile(a.config, os.path.join(a.folder, "config.json"))
    except OSError as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
