#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/gguf_to_safetensors.py on tiny GGUF files: each tensor has the values and the order of
# rows that Hugging Face has, and the program loads the folder.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import gguf, numpy' 2>/dev/null; then
	echo '1..0 # SKIP no gguf and numpy'
	exit 0
fi

# Each model NAME is NAME.gguf, and NAME.npz has its tensors as Hugging Face names and orders them.
"$python" - "$tmp" >"$tmp/.log" 2>&1 <<'EOF' ||
import sys
import gguf, numpy as np
tmp = sys.argv[1]
VOCAB, HIDDEN, FFN, HEADS, KV, DIM, LAYERS = 40, 32, 64, 4, 2, 16, 2
Q8 = gguf.GGMLQuantizationType.Q8_0
rng = np.random.default_rng(0)

def values(*shape):
    return rng.standard_normal(shape, np.float32)

def paired(x, heads):
    """Row 2i of a head is channel i, row 2i + 1 channel i + DIM / 2."""
    y = np.empty_like(x)
    for h in range(heads):
        for i in range(DIM // 2):
            y[h * DIM + 2 * i] = x[h * DIM + i]
            y[h * DIM + 2 * i + 1] = x[h * DIM + i + DIM // 2]
    return y

def llama3(dim, theta, factor):
    """One divisor for each pair, by the wavelength as Llama 3.1 has it."""
    out = []
    for k in range(dim // 2):
        wave = 2 * np.pi * theta ** (2 * k / dim)
        if wave < 8192 / 4:
            out.append(1)
        elif wave > 8192:
            out.append(factor)
        else:
            m = (8192 / wave - 1) / 3
            out.append(1 / ((1 - m) / factor + m))
    return np.array(out, np.float32)

def make(name, arch, change=None, keys=None, tied=False, bias=False, o_bias=False, norms=False,
         freqs=None, quantised=False, tokenizer=None):
    w = gguf.GGUFWriter(f"{tmp}/{name}.gguf", arch)
    have = {f"{arch}.block_count": LAYERS, f"{arch}.embedding_length": HIDDEN,
            f"{arch}.feed_forward_length": FFN, f"{arch}.attention.head_count": HEADS,
            f"{arch}.attention.head_count_kv": KV, f"{arch}.attention.key_length": DIM,
            f"{arch}.context_length": 4096, **(keys or {})}
    for key, value in have.items():
        if isinstance(value, list):
            w.add_array(key, value)
        elif isinstance(value, str):
            w.add_string(key, value)
        else:
            w.add_uint32(key, value)
    w.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    w.add_float32(f"{arch}.rope.freq_base", 500000)
    if "scaling" in name:
        w.add_float32(f"{arch}.rope.scaling.factor", 4)
    if tokenizer:
        tokenizer(w)
    want = {}
    tensors = {}

    def both(theirs, ours, x, heads=None, kind=None):
        stored = paired(x, heads) if heads and arch == "llama" else x
        if kind:        # what HF has is what is left after quantisation
            data = gguf.quantize(stored, kind)
            back = gguf.dequantize(data, kind)
            order = paired(np.arange(len(x), dtype=np.float32)[:, None], heads)[:, 0].astype(int) \
                if heads and arch == "llama" else np.arange(len(x))
            x = np.empty_like(x)
            x[order] = back
            tensors[ours] = (data, kind)
        else:
            tensors[ours] = (stored, None)
        want[theirs] = x

    q8 = Q8 if quantised else None
    both("model.embed_tokens.weight", "token_embd.weight", values(VOCAB, HIDDEN), kind=q8)
    both("model.norm.weight", "output_norm.weight", values(HIDDEN))
    if not tied:
        both("lm_head.weight", "output.weight", values(VOCAB, HIDDEN))
    for i in range(LAYERS):
        hf, their = f"model.layers.{i}.", f"blk.{i}."
        both(hf + "input_layernorm.weight", their + "attn_norm.weight", values(HIDDEN))
        both(hf + "post_attention_layernorm.weight", their + "ffn_norm.weight", values(HIDDEN))
        for part, heads in (("q", HEADS), ("k", KV), ("v", KV)):
            permuted = heads if part in "qk" else None
            both(hf + f"self_attn.{part}_proj.weight", their + f"attn_{part}.weight",
                 values(heads * DIM, HIDDEN), permuted, q8)
            if bias:
                both(hf + f"self_attn.{part}_proj.bias", their + f"attn_{part}.bias",
                     values(heads * DIM), permuted)
            if norms and part in "qk":
                both(hf + f"self_attn.{part}_norm.weight", their + f"attn_{part}_norm.weight",
                     values(DIM))
        both(hf + "self_attn.o_proj.weight", their + "attn_output.weight",
             values(HIDDEN, HEADS * DIM))
        if o_bias:
            both(hf + "self_attn.o_proj.bias", their + "attn_output.bias", values(HIDDEN))
        for part in ("gate", "up"):
            both(hf + f"mlp.{part}_proj.weight", their + f"ffn_{part}.weight", values(FFN, HIDDEN))
        both(hf + "mlp.down_proj.weight", their + "ffn_down.weight", values(HIDDEN, FFN))
    if freqs is not None:
        tensors["rope_freqs.weight"] = (freqs, None)
    if change:
        change(tensors)
    for ours, (x, kind) in tensors.items():
        w.add_tensor(ours, x, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    np.savez(f"{tmp}/{name}.npz", **want)

def bpe(pre, first):
    def add(w):
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        tokens = ["<s>", "a", "b", "1", "Ġ", "ab", "11"] + [f"t{i}" for i in range(VOCAB - 7)]
        w.add_token_list(tokens)
        w.add_token_types([3] + [1] * (VOCAB - 1))
        w.add_token_merges(["a b", "1 1"])
        w.add_bos_token_id(0)
        w.add_add_bos_token(first)
    return add

def tie(tensors):       # values between two of bf16, and half way between
    x = tensors["output_norm.weight"][0]
    x[:4] = [1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -16, -1 - 2 ** -9]

def without(name):
    return lambda tensors: tensors.pop(name)

def extra(tensors):
    tensors["blk.0.ffn_gate_inp.weight"] = (values(4, HIDDEN), None)

def odd(tensors):
    tensors["blk.1.attn_v.weight"] = (values(KV * DIM, HIDDEN + 1), None)

def whole(tensors):
    tensors["blk.1.attn_v.weight"] = (np.ones((KV * DIM, HIDDEN), np.int8), None)

def nan(tensors):
    tensors["blk.1.attn_v.weight"][0][3, 3] = np.nan

make("llama", "llama", change=tie, tokenizer=bpe("smollm", False))
make("llama31", "llama", freqs=llama3(DIM, 500000, 8), quantised=True,
     tokenizer=bpe("llama-bpe", True))
make("biased", "llama", bias=True, o_bias=True, tied=True)
make("qwen2-scaling", "qwen2", bias=True, tied=True, keys={
     "qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.original_context_length": 1024})
make("qwen3", "qwen3", norms=True, tokenizer=bpe("odd", False))
make("gemma3", "gemma3")
make("experts", "llama", keys={"llama.expert_count": 8})
make("parts", "llama", keys={"split.count": 3})
make("partial", "llama", keys={"llama.rope.dimension_count": DIM // 2})
make("varies", "llama", keys={"llama.attention.head_count_kv": [KV, HEADS]})
make("longrope-scaling", "llama", keys={"llama.rope.scaling.type": "longrope"})
make("freqs", "llama", freqs=2 * llama3(DIM, 500000, 8))
make("missing", "llama", change=without("blk.1.attn_v.weight"))
make("halfbias", "llama", bias=True)
make("noembed", "llama", change=without("token_embd.weight"))
make("extra", "llama", change=extra)
make("odd", "llama", change=odd)
make("nan", "llama", change=nan)
make("whole", "llama", change=whole)
open(f"{tmp}/text.gguf", "w").write("no model")
for n in (0, 500, 9000):
    open(f"{tmp}/cut{n}.gguf", "wb").write(open(f"{tmp}/llama.gguf", "rb").read()[:n])
EOF
	{ cat "$tmp/.log" >&2; echo 'Bail out! no models'; exit 1; }

convert() { # convert NAME
	"$python" "$srcdir/contrib/gguf_to_safetensors.py" "$tmp/$1.gguf" "$tmp/$1"
}
same() { # same NAME: names, shapes and values of NAME/model.safetensors are those of NAME.npz
	"$python" - "$tmp/$1" <<'EOF'
import json, struct, sys
import numpy as np
with open(sys.argv[1] + "/model.safetensors", "rb") as f:
    size, = struct.unpack("<Q", f.read(8))
    header, data = json.loads(f.read(size)), f.read()
want = np.load(sys.argv[1] + ".npz")
assert sorted(header) == sorted(want.files), set(header) ^ set(want.files)
for name in want.files:
    t, x = header[name], want[name]
    assert t["dtype"] == "BF16" and t["shape"] == list(x.shape), (name, t, x.shape)
    got = np.frombuffer(data[slice(*t["data_offsets"])], "<u2").astype(np.uint32) << 16
    got, x = got.view(np.float32).astype(np.float64), x.ravel().astype(np.float64)
    # the nearest bf16: 8 bits from the first one on, ties to even
    step = 2.0 ** (np.frexp(x)[1] - 8)
    assert np.array_equal(got, np.round(x / step) * step), name
EOF
}
holds() { # holds FILE PYTHON: an expression about the parsed FILE, which is x
	"$python" -c 'import json, sys; x = json.load(open(sys.argv[1])); assert ('"$2"'), x' "$tmp/$1"
}
loads() { # loads NAME TEXT: a capture of it, whose description has a line like TEXT
	"$ATTNREPLAY" -q capture make --weights "$tmp/$1" --prompt "$tmp/ids" -o "$tmp/$1.arc" &&
		"$ATTNREPLAY" capture info "$tmp/$1.arc" | tr -s ' ' | grep -q "$2"
}
refuses() { # refuses NAME PATTERN
	convert "$1" >"$tmp/.refused" 2>&1 && return 1
	cat "$tmp/.refused"
	[ "$(wc -l <"$tmp/.refused")" = 1 ] && grep -q "^gguf_to_safetensors: $tmp/$1.gguf: .*$2" \
		"$tmp/.refused" && [ ! -e "$tmp/$1/config.json" ] && [ ! -e "$tmp/$1/model.safetensors" ]
}
echo '[1, 5, 39]' >"$tmp/ids"

for name in llama llama31 biased qwen2-scaling qwen3; do
	ok "$name is converted" convert $name
	ok '... with the values and rows of Hugging Face' same $name
done
ok 'the program loads one of each' loads llama 'rope applied, theta 500000$'
ok 'with the scaling of Llama 3.1' loads llama31 'theta 500000, llama3 factor 8$'
ok 'with a bias' loads biased 'q heads 4'
ok 'with YaRN' loads qwen2-scaling 'yarn factor 4'
ok 'with norms of Q and K' loads qwen3 'kv heads 2'

ok 'config.json of it' holds llama/config.json 'x["rms_norm_eps"] == 1e-5 and
	x["architectures"] == ["LlamaForCausalLM"] and not x["tie_word_embeddings"] and
	x["head_dim"] == 16 and not x["attention_bias"] and "rope_scaling" not in x'
ok 'a bias and tied embeddings are said' holds biased/config.json '
	x["attention_bias"] and x["tie_word_embeddings"]'
ok 'a tokenizer that cuts digits, then words' holds llama/tokenizer.json '
	x["model"]["vocab"]["ab"] == 5 and x["post_processor"] is None and
	[s["type"] for s in x["pre_tokenizer"]["pretokenizers"]] == ["Digits", "ByteLevel"]'
if "$python" -c 'import tokenizers' 2>/dev/null; then
	encode() { # encode NAME: ids of a text with that tokenizer
		"$python" -c 'import sys, tokenizers
print(tokenizers.Tokenizer.from_file(sys.argv[1]).encode("ab<s>11 a").ids)' "$tmp/$1/tokenizer.json"
	}
	is 'single digits and a special token' "$(encode llama)" '[5, 0, 3, 3, 4, 1]'
	is 'a first token and whole numbers' "$(encode llama31)" '[0, 5, 0, 6, 4, 1]'
else
	skip 'encoding' 'no tokenizers'
fi
ok 'none where the cut is not known' test ! -e "$tmp/qwen3/tokenizer.json"
is 'and it is said' "$(convert qwen3 | tail -n 1)" \
	"no tokenizer.json: it cuts texts as 'odd', which is not known"

ok 'an architecture that is not known' refuses gemma3 "'gemma3' is not known; known are llama"
ok 'experts'                           refuses experts 'with experts are not converted'
ok 'one of several parts'              refuses parts 'one part of several'
ok 'RoPE of a part of a head'          refuses partial 'RoPE of a part of a head'
ok 'heads that differ between layers'  refuses varies "head_count_kv' differs between layers"
ok 'RoPE of another type'              refuses longrope-scaling "type 'longrope' is not converted"
ok 'divisors of another scaling'       refuses freqs "is not Llama 3's"
ok 'a tensor that is missing'          refuses missing "has no tensor 'blk.1.attn_v.weight'"
ok 'a bias of some products'           refuses halfbias "no tensor 'blk.0.attn_output.bias'"
ok 'no embedding'                      refuses noembed "no tensor 'token_embd.weight'"
ok 'a tensor without a place'          refuses extra "'blk.0.ffn_gate_inp.weight' has no place"
ok 'a tensor of another shape'         refuses odd "is \[32, 33\]; want \[32, 32\]"
ok 'a value that is not finite'        refuses nan "'blk.1.attn_v.weight' has a value that is not"
ok 'a type that is not dequantised'    refuses whole 'I8'
ok 'a file that is no GGUF'            refuses text 'no GGUF file'
ok 'an empty one'                      refuses cut0 'no GGUF file'
ok 'one cut off in its head'           refuses cut500 'or cut off'
ok 'one cut off in its tensors'        refuses cut9000 'or cut off'
ok 'no file'                           refuses nothing 'No such file'
finish
