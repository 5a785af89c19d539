#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/make_tasks.py with a small tokenizer: its answers are what the prompts say, found again
# from the texts, and its sizes are those asked for.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
	echo '1..0 # SKIP no tokenizers'
	exit 0
fi

"$python" - "$tmp" >"$tmp/.log" 2>&1 <<'EOF' ||
import itertools, json, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tmp = sys.argv[1]
words = ["".join(w) for w in itertools.product(("ba", "ke", "lo", "mi", "nu"), ("ber", "das", "fil",
         "gon"), ("", "ta", "ve"))]
for name, n in (("tokenizer", len(words)), ("few", 20)):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([" ".join([""] + words[:n])] * 3, trainers.BpeTrainer(vocab_size=600,
        show_progress=False, special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save(f"{tmp}/{name}.json")
good = {"index": 0, "input": "What is it? ", "outputs": ["ab", "cd"], "length": 99}
with open(f"{tmp}/ruler.jsonl", "w") as f:
    f.write(json.dumps(good) + "\n")
    f.write(json.dumps({**good, "input": "What", "answer_prefix": " is it:"}) + "\n")
for name, change in (("none", {"outputs": []}), ("number", {"outputs": [1]}),
                     ("noinput", {"input": 0}), ("long", {"input": "x" * 5000})):
    with open(f"{tmp}/{name}.jsonl", "w") as f:
        f.write(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
open(f"{tmp}/text.jsonl", "w").write("no JSON\n")
with open(f"{tmp}/own.txt", "w") as f:
    f.write("".join(f"Own sentence number {i} is\nhere. " for i in range(50)))
open(f"{tmp}/one.txt", "w").write("Only one sentence.")
EOF
	{ cat "$tmp/.log" >&2; echo 'Bail out! no tokenizer'; exit 1; }

make() { # make OUT OPTION...
	out=$1
	shift
	"$python" "$srcdir/contrib/make_tasks.py" --tokenizer "$tmp/tokenizer.json" -o "$tmp/$out" "$@"
}
refuses() { # refuses PATTERN OPTION...
	pattern=$1
	shift
	make none.out "$@" >"$tmp/.refused" 2>&1 && return 1
	cat "$tmp/.refused"
	grep -q -e "$pattern" "$tmp/.refused" && [ "$(ls "$tmp" | grep -c none.out)" = 0 ]
}
look() { # look FILE STATEMENTS: python with all = the lines of FILE, and text() of ids
	"$python" -c '
import collections, gzip, json, re, sys
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[1])
with (gzip.open if sys.argv[2].endswith(".gz") else open)(sys.argv[2], "rt") as f:
    all = [json.loads(line) for line in f]
def text(ids):
    return t.decode(ids, skip_special_tokens=False)
'"$2" "$tmp/tokenizer.json" "$tmp/$1"
}

# The answer found again, from the text of a prompt alone.
solve='
def by_count(words, first, last):
    return [w for w, _ in collections.Counter(words).most_common()[first:last]]

def needles(prompt, kind, ask, sentence):
    key = re.search(ask % kind, prompt.split("Question:")[-1])[1]
    return re.findall(sentence % (kind, re.escape(key)), prompt)

def plain(d, prompt):
    if d["task"].startswith("niah"):
        kind = "uuid" if d["task"] == "niah_multikey_3" else "number"
        return needles(prompt, kind, r"secret %ss? of ([^?,]*)[?,]",
                       r"A secret %s of %s is (\S+)\.\n")
    if d["task"] == "vt":
        prompt = prompt.split("Some lines of this")[-1]
        value = re.search(r"have the value (\d+)", prompt)[1]
        found = []
        for name, is_ in re.findall(r"VAR ([a-z ]+) = (.*)", prompt):
            if is_ == value or is_[4:] in found:
                found.append(name)
        return found
    if d["task"] == "cwe":
        prompt = prompt.split("In this numbered list")[-1].split("Question:")[0]
        numbers = [int(n) for n in re.findall(r"(\d+)\. ", prompt)]
        assert numbers == list(range(1, len(numbers) + 1)), numbers
        words = re.findall(r"\d+\. ([a-z]+(?: [a-z]+)?)", prompt)
        count = collections.Counter(words).values()
        assert sorted(set(count)) == ([3, 30] if d["length"] >= 4096 else [1, 6]), set(count)
        return sorted(by_count(words, 0, 10))
    words = prompt.split("\n")[1].split(" ")
    assert words.count("...") > len(words) / 2
    count = [n for _, n in collections.Counter(words).most_common(5)]
    assert len(set(count)) == 5, count
    return by_count(words, 1, 4)

for d in all:
    prompt, answer = text(d["prompt"]), text(d["answer"])
    assert prompt.endswith("?\nAnswer:"), prompt[-60:]
    assert answer == " " + ", ".join(plain(d, prompt)) + "\n", (d["task"], answer)
    parts = answer.split(", ")
    assert len(parts) == {"niah_single_2": 1, "niah_multikey_3": 1, "niah_multivalue": 4, "vt": 5,
                          "cwe": 10, "fwe": 3}[d["task"]]
'

ok 'prompts of all tasks' make a.jsonl.gz --lengths 1500,4096 --count 3
is 'three of each task and length' "$(look a.jsonl.gz '
count = collections.Counter((d["task"], d["length"]) for d in all)
print(sorted(set(count.values())), len(all))')" \
	'[3] 36'
ok 'each answer is what its prompt says' look a.jsonl.gz "$solve"
ok 'prompt and answer fill the length' look a.jsonl.gz '
room = {"niah_single_2": 120, "niah_multikey_3": 170, "niah_multivalue": 120, "vt": 60, "cwe": 60,
        "fwe": 40}
for d in all:
    left = d["length"] - len(d["prompt"]) - len(d["answer"])
    assert 0 <= left < room[d["task"]], (d["task"], d["length"], left)'
ok 'no two prompts have the same answer' look a.jsonl.gz '
assert len({(d["length"], tuple(d["answer"])) for d in all}) == len(all)'
ok 'needles are early and late' look a.jsonl.gz '
at = [text(d["prompt"]).index(text(d["answer"]).strip()) / len(text(d["prompt"])) for d in all
      if d["task"] == "niah_multikey_3"]
assert max(at) - min(at) > 0.2, at'

ok 'again' make b.jsonl.gz --lengths 1500,4096 --count 3
ok 'the same arguments give the same file' cmp "$tmp/a.jsonl.gz" "$tmp/b.jsonl.gz"
ok 'one prompt' make one.jsonl --lengths 1500 --count 1 --tasks vt,cwe
ok 'three' make three.jsonl --lengths 1500 --count 3 --tasks vt,cwe
is 'begin with it' "$(sed -n '1p;4p' "$tmp/three.jsonl" | cksum)" "$(cksum <"$tmp/one.jsonl")"
ok 'another seed' make seed.jsonl --lengths 1500 --count 1 --tasks vt,cwe --seed 2
ok 'gives other prompts' look seed.jsonl '
assert [d["answer"] for d in all] != [json.loads(l)["answer"] for l in open(sys.argv[2].replace(
    "seed", "one"))]'

ok 'text around a prompt, and another end' make chat.jsonl --lengths 1500 --count 1 \
	--before '<s>user ' --after '<s>model' --end '!'
ok 'is where it belongs' look chat.jsonl '
for d in all:
    p = text(d["prompt"])
    assert d["prompt"][0] == t.token_to_id("<s>") and d["prompt"].count(d["prompt"][0]) == 2
    assert p.startswith("<s>user ") and p.endswith("?<s>model\nAnswer:"), p[-40:]
    assert text(d["answer"]).endswith("!"), d'
ok 'no example, and noise' make noise.jsonl --lengths 1500 --count 1 --shots 0 \
	--haystack noise --tasks niah_multivalue,vt
ok 'are what was asked for' look noise.jsonl '
for d in all:
    p = text(d["prompt"])
    assert p.count("Question:") == 1 and p.count("The rain is light.") > 5'
ok 'sentences of a file' make own.jsonl --lengths 1500 --count 2 --haystack "$tmp/own.txt" \
	--tasks niah_multivalue
ok 'are the haystack, from another one on' look own.jsonl '
first = [re.findall(r"Own sentence number (\d+) is here\.", text(d["prompt"])) for d in all]
assert first[0][0] != first[1][0]
for numbers in first:
    assert len(numbers) > 20, numbers
    for a, b in zip(numbers, numbers[1:]):
        assert (int(b) - int(a)) % 50 == 1, (a, b)'
ok 'the sentences of niah-llama-14m' make llama.jsonl --lengths 1500 --count 1 \
	--wording niah-llama --tasks niah_multivalue,vt
ok 'are its' look llama.jsonl '
p = text(all[0]["prompt"])
key = re.search(r"all the special magic numbers for ([a-z ]+)\? Answer:$", p)[1]
found = re.findall(rf"\nOne of the special magic numbers for {key} is: (\d+)\.", p)
assert text(all[0]["answer"]) == " " + ", ".join(found) + "\n", found
assert text(all[1]["prompt"]).endswith("? Answer:")'

ok "RULER's files" make r.jsonl --ruler "vt=$tmp/ruler.jsonl" --ruler "cwe=$tmp/ruler.jsonl" \
	--ruler "qa_1=$tmp/ruler.jsonl" --lengths 8,64
is 'have its texts and its order' "$(look r.jsonl '
for d in all:
    print(d["task"], d["length"], repr(text(d["prompt"])), repr(text(d["answer"])))')" \
"vt 64 'What is it? ' 'ab cd\\n'
vt 64 'What is it:' ' ab cd\\n'
cwe 64 'What is it? ' '1. ab 2. cd\\n'
cwe 64 'What is it:' ' 1. ab 2. cd\\n'
qa_1 64 'What is it? ' 'ab, cd\\n'
qa_1 64 'What is it:' ' ab, cd\\n'"

ok 'a task that is not known'   refuses "no task 'niah'; known are niah_single_2" --tasks niah
ok 'a length without room'      refuses 'task cwe needs .* length 100 is too short' \
	--lengths 100 --tasks cwe
ok 'a length that is none'      refuses "argument --lengths: invalid" --lengths 4k
ok 'a haystack of one sentence' refuses 'one.txt: has no two sentences' --haystack "$tmp/one.txt"
ok 'no haystack'                refuses 'No such file' --haystack "$tmp/nothing"
ok 'a vocabulary without words' refuses 'has .* words; 50 are needed' --tokenizer "$tmp/few.json"
ok 'no tokenizer'               refuses 'nothing: No such file' --tokenizer "$tmp/nothing"
ok 'a line that is no JSON'     refuses "text.jsonl:1: want an object" --ruler "vt=$tmp/text.jsonl"
ok 'no answer'                  refuses "none.jsonl:2: want an object" --ruler "vt=$tmp/none.jsonl"
ok 'an answer that is no text'  refuses "number.jsonl:2: want an" --ruler "vt=$tmp/number.jsonl"
ok 'no prompt'                  refuses "noinput.jsonl:2: want an" --ruler "vt=$tmp/noinput.jsonl"
ok 'a prompt that is too long'  refuses "long.jsonl:2: .*--lengths has no such length" \
	--ruler "vt=$tmp/long.jsonl" --lengths 4096
ok 'a file without its task'    refuses 'want TASK=FILE' --ruler "$tmp/ruler.jsonl"
finish
