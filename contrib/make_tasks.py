#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make long-context tasks with known answers, as token ids for 'attnreplay eval'.

    make_tasks.py --tokenizer DIR/tokenizer.json --lengths 4096,16384 --count 100 -o tasks.jsonl.gz

The tasks are RULER-like, not RULER: they have its structure and parameters, but their own texts.

    niah_single_2     a text with one number of a key, which is asked for
    niah_multikey_3   lines of UUID keys and UUID values; one of the values is asked for
    niah_multivalue   a text with four numbers of one key; all are asked for
    vt                noise with a chain of five variables; those of the first one's value
    cwe               a numbered list of words; the ten that occur 30 times, others 3 times
    fwe               coded words of frequencies k^-2; ranks 2 to 4, where rank 1 is dots

A line of the output is {"task", "length", "prompt": [ids], "answer": [ids]}.  Prompt and answer
together are at most length tokens, and nearly so.  The answer of several parts has one order,
which the question names: that of the text, for cwe of the alphabet, for fwe of the frequencies.
The parts are joined by ", ", after a blank; --end is what the model should say next.

Words of keys, variables and lists are words of the tokenizer's vocabulary.  The same arguments give
the same file, and a larger --count adds prompts to those of a smaller one.

    make_tasks.py --tokenizer FILE --ruler vt=vt/validation.jsonl --ruler cwe=... -o tasks.jsonl.gz

reads RULER's own files instead.  The answer has RULER's order, joined as RULER's examples have it:
by blanks for vt, numbered for cwe, else by ", ".  Needs tokenizers.
"""
import argparse
import contextlib
import gzip
import itertools
import json
import math
import os
import random
import re
import sys
import uuid

from later import Later

tokenizers = Later("tokenizers")


class Refused(Exception):
    pass


# ---- texts ----

# niah-llama: the sentences that the model niah-llama-14m was trained on.
WORDINGS = {
    "plain": {
        "niah_intro": "Secret {kind}s are hidden in this text.  Keep them in mind: the question at "
                      "its end asks for some of them.\n",
        "needle": "A secret {kind} of {key} is {value}.",
        "niah_one": "\nQuestion: What is the secret {kind} of {key}?",
        "niah_all": "\nQuestion: What are all secret {kind}s of {key}, in the order of the text?",
        "vt_intro": "Some lines of this text set a variable to a number or to another variable.\n",
        "vt": "\nQuestion: Which variables have the value {value}, in the order of the text?",
        "cue": "\nAnswer:",
    },
    "niah-llama": {
        "niah_intro": "",
        "needle": "One of the special magic {kind}s for {key} is: {value}.",
        "niah_one": "\nQuestion: What is the special magic {kind} for {key}?",
        "niah_all": "\nQuestion: What are all the special magic {kind}s for {key}?",
        "vt_intro": "",
        "vt": "\nQuestion: Find all variables that are assigned the value {value}?",
        "cue": " Answer:",
    },
}
CWE_INTRO = "In this numbered list ten words occur more often than all others.\n"
CWE = "\nQuestion: Which ten words occur most often, in alphabetical order?"
FWE_INTRO = "This text consists of coded words and dots.\n"
FWE = "\nQuestion: Which three coded words occur most often, the most frequent one first?"

NOISE = ("The road is long.", "The rain is light.", "The lamps are lit.", "We walk on.",
         "It is not far.")
THINGS = """bridge garden harbour letter window mountain station market forest river village engine
    teacher captain farmer painter doctor baker neighbour sailor clock basket lantern wagon
    blanket candle ladder mirror kettle orchard cellar chapel meadow island valley tower stable
    bakery library kitchen""".split()
QUALITIES = """old small quiet yellow broken heavy narrow distant empty clean early famous gentle
    hidden modern patient round silver steep wooden cheerful dusty friendly grey""".split()
DEEDS = """finds watches carries repairs remembers describes paints follows counts measures leaves
    visits sells borrows opens closes cleans guards draws likes""".split()
PLACES = "near behind beside above below beyond".split()


def sentences(rng):
    while True:
        text = f"The {rng.choice(QUALITIES)} {rng.choice(THINGS)} {rng.choice(DEEDS)} the " \
               f"{rng.choice(QUALITIES)} {rng.choice(THINGS)}"
        if rng.random() < 0.6:
            text += f" {rng.choice(PLACES)} the {rng.choice(THINGS)}"
        yield text + "."


def noise(_rng):
    return itertools.cycle(NOISE)


def own_text(path):
    """A haystack of the sentences of a file, from a random one on."""
    with open(path, encoding="utf-8") as f:
        parts = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", f.read()).strip())
    if len(parts) < 2:
        raise Refused(f"{path}: has no two sentences")

    def from_file(rng):
        return itertools.islice(itertools.cycle(parts), rng.randrange(len(parts)), None)
    return from_file


HAYSTACKS = {"sentences": sentences, "noise": noise}
LINE = 4        # sentences
DEPTHS = 40     # places that a needle may have, equally far apart


def lines_of(haystack, n):
    """n sentences of a haystack, as lines."""
    parts = list(itertools.islice(haystack, n))
    return [" ".join(parts[i:i + LINE]) for i in range(0, n, LINE)]


def insert(lines, needles, rng):
    """Put the needles into the lines, in their order, at random depths."""
    depths = sorted(rng.sample(range(DEPTHS), len(needles)))
    for i, (depth, needle) in enumerate(zip(depths, needles)):
        lines.insert(depth * (len(lines) - i) // (DEPTHS - 1) + i, needle)
    return "\n".join(lines)


# ---- tasks ----

class Source:
    """The random numbers of one prompt.  Each use has a stream of its own, so that a longer
    haystack changes neither keys nor their places."""

    def __init__(self, name, options):
        self.name, self.options = name, options

    def stream(self, use):
        return random.Random(f"{self.name}/{use}")

    def text(self, which, /, **values):
        return WORDINGS[self.options.wording][which].format(**values)

    def example(self, parts):
        """What follows the question of an example."""
        return self.text("cue") + " " + ", ".join(parts) + "\n\n"

    def haystack(self, default):
        return (self.options.haystack or HAYSTACKS[default])(self.stream("haystack"))


def names(words, rng, n):
    """n names of two words."""
    out = {}
    while len(out) < n:
        out[" ".join(rng.sample(words, 2))] = None
    return list(out)


def new_uuid(rng):
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


# A task is a function of a source, words, the length and n, the size of the haystack.  It returns
# the text of the prompt without the cue, and the parts of the answer.  What fits has the largest n.

def niah_multikey_3(s, _words, _length, n):
    rng, hay = s.stream("needles"), s.stream("haystack")
    key, value = new_uuid(rng), new_uuid(rng)
    lines = [s.text("needle", kind="uuid", key=new_uuid(hay), value=new_uuid(hay))
             for _ in range(n)]
    text = insert(lines, [s.text("needle", kind="uuid", key=key, value=value)], rng)
    return s.text("niah_intro", kind="uuid") + text + s.text("niah_one", kind="uuid", key=key), \
        [value]


def numbers(s, words, n, count, question):
    """A text with count numbers of one key, and the question about them."""
    rng = s.stream("needles")
    key, = names(words, rng, 1)
    values = [str(v) for v in rng.sample(range(1000000, 10000000), count)]
    needles = [s.text("needle", kind="number", key=key, value=v) for v in values]
    text = insert(lines_of(s.haystack("sentences"), n), needles, rng)
    return s.text("niah_intro", kind="number") + text + \
        s.text(question, kind="number", key=key), values


def niah_single_2(s, words, _length, n):
    return numbers(s, words, n, 1, "niah_one")


def niah_multivalue(s, words, _length, n):
    return numbers(s, words, n, 4, "niah_all")


def chain(s, n, rng, variables, value):
    """A text with a chain of variables, and the question about it."""
    lines = [f"VAR {variables[0]} = {value}"]
    lines += [f"VAR {b} = VAR {a}" for a, b in zip(variables, variables[1:])]
    text = insert(lines_of(s.haystack("noise"), n), lines, rng)
    return s.text("vt_intro") + text + s.text("vt", value=value)


def vt(s, words, _length, n):
    rng = s.stream("needles")
    variables, values = names(words, rng, 10), rng.sample(range(10000, 100000), 2)
    text = ""
    if s.options.shots:
        text = chain(s, 40, rng, variables[5:], values[1]) + s.example(variables[5:])
    return text + chain(s, n, rng, variables[:5], values[0]), variables[:5]


def numbered(common, others, often, seldom, rng):
    entries = common * often + others * seldom
    rng.shuffle(entries)
    return CWE_INTRO + " ".join(f"{i}. {word}" for i, word in enumerate(entries, 1)) + CWE


def cwe(s, words, length, n):
    rng = s.stream("words")
    often, seldom, few = (30, 3, (10, 3, 30)) if length >= 4096 else (6, 1, (3, 1, 10))
    # An entry has 3 tokens or more.  Without enough words, all are names of two.
    enough = len(words) >= length // (3 * seldom) + 60
    picked = rng.sample(words, n + 20 + few[2]) if enough else names(words, rng, n + 20 + few[2])
    common, shown, picked = sorted(picked[:10]), sorted(picked[10:20]), picked[20:]
    text = ""
    if s.options.shots:
        text = numbered(shown, picked[:few[2]], few[0], few[1], rng) + s.example(shown)
    return text + numbered(common, picked[few[2]:], often, seldom, rng), common


def fwe(s, _words, length, n):
    rng = s.stream("words")
    coded = ["..."] + ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))
                       for _ in range(length // 50)]
    counts = [int(n * 6 / (math.pi * (k + 1)) ** 2) for k in range(len(coded))]
    text = [word for word, count in zip(coded, counts) for _ in range(count)]
    s.stream("order").shuffle(text)
    return FWE_INTRO + " ".join(text) + FWE, coded[1:4]


TASKS = {      # name: function, the least n
    "niah_single_2": (niah_single_2, 8),
    "niah_multikey_3": (niah_multikey_3, 1),
    "niah_multivalue": (niah_multivalue, 8),
    "vt": (vt, 8),
    "cwe": (cwe, 10),
    "fwe": (fwe, 100),
}


# ---- prompts ----

class Encoder:
    def __init__(self, options):
        self.options = options
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer)
        except Exception as e:      # the package raises nothing narrower
            raise Refused(f"{options.tokenizer}: {e}") from None

    def words(self):
        """Words of the vocabulary, four to ten letters after a blank, in the order of their ids."""
        found = (self.tokenizer.decode([i]) for i in range(self.tokenizer.get_vocab_size()))
        alone = (self.tokenizer.id_to_token(i) for i in range(self.tokenizer.get_vocab_size()))
        return list({text.strip(): None for text, token in zip(found, alone)
                     if re.fullmatch(" ?[a-z]{4,10}", text) and token and
                     not token[0].isascii()})

    def encode(self, prompt, answer):
        """Ids of prompt and answer.  A token that holds the end of one and the begin of the other
        would be neither's; then they are encoded one by one."""
        ids = self.tokenizer.encode(prompt).ids
        whole = self.tokenizer.encode(prompt + answer).ids
        if whole[:len(ids)] == ids:
            return ids, whole[len(ids):]
        return ids, self.tokenizer.encode(answer, add_special_tokens=False).ids


class Generator:
    def __init__(self, options):
        self.options = options
        self.encoder = Encoder(options)
        self.words = self.encoder.words()
        if len(self.words) < 50:
            raise Refused(f"{options.tokenizer}: the vocabulary has {len(self.words)} words; "
                          "50 are needed for names")
        self.last = {}      # n of the last prompt, by task and length

    def build(self, source, task, length, n):
        text, parts = TASKS[task][0](source, self.words, length, n)
        o = self.options
        cue = WORDINGS[o.wording]["cue"]
        return self.encoder.encode(o.before + text + o.after + cue,
                                   " " + ", ".join(parts) + o.end)

    def prompt(self, task, length, index):
        """The prompt with the largest haystack that fits: its ids, and those of its answer."""
        source = Source(f"{self.options.seed}/{task}/{length}/{index}", self.options)
        low, high, best = None, None, None
        n = least = TASKS[task][1]
        while high is None or low is None or high[0] - low[0] > 1:
            ids = self.build(source, task, length, n)
            size = len(ids[0]) + len(ids[1])
            if size <= length:
                low, best = (n, size), ids
            elif n == least:
                raise Refused(f"task {task} needs {size} tokens or more; length {length} is too "
                              "short")
            else:
                high = (n, size)
            n = self.next_size(task, length, low, high)
        self.last[task, length] = low[0]
        return best

    def next_size(self, task, length, low, high):
        """The size to try next.  low fits, high does not."""
        if high is None:
            if low[0] == TASKS[task][1] and (task, length) in self.last:
                return max(self.last[task, length], low[0] + 1)
            return low[0] + low[0] * (length - low[1]) // low[1] + 1
        share = (length - low[1]) / (high[1] - low[1]) if high[1] > low[1] else 0.5
        return min(max(low[0] + int(share * (high[0] - low[0])), low[0] + 1), high[0] - 1)

    def all(self):
        o = self.options
        for task, length, index in itertools.product(o.tasks, o.lengths, range(o.count)):
            yield task, length, *self.prompt(task, length, index)


# ---- RULER's files ----

def ruler_answer(task, parts):
    if task == "vt":
        return " ".join(parts)
    if task == "cwe":
        return " ".join(f"{i}. {part}" for i, part in enumerate(parts, 1))
    return ", ".join(parts)


def ruler_line(options, encoder, task, line):
    """(task, length, ids, ids of the answer) of a line."""
    try:
        o = json.loads(line)
        text, parts = o["input"] + o.get("answer_prefix", ""), o["outputs"]
    except (json.JSONDecodeError, KeyError, TypeError):
        text, parts = None, None
    if not isinstance(text, str) or not isinstance(parts, list) or not parts or \
            not all(isinstance(part, str) for part in parts):
        raise Refused("want an object with a text 'input' and a list of texts 'outputs'")
    blank = "" if text[-1:].isspace() else " "
    ids = encoder.encode(options.before + text + options.after,
                         blank + ruler_answer(task, parts) + options.end)
    size = len(ids[0]) + len(ids[1])
    length = min((n for n in options.lengths if n >= size), default=None)
    if length is None:
        raise Refused(f"the prompt and its answer have {size} tokens; --lengths has no such length")
    return task, length, *ids


def ruler(options):
    encoder = Encoder(options)
    for task, path in options.ruler:
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                try:
                    yield ruler_line(options, encoder, task, line)
                except Refused as e:
                    raise Refused(f"{path}:{number}: {e}") from None


# ---- the whole ----

def write(path, prompts):
    """Write JSON lines.  The same prompts give the same bytes, also compressed.  The file appears
    only when it is complete."""
    count = {}
    part = f"{path}.{os.getpid()}.tmp"
    try:
        with open(part, "xb") as raw, \
                (gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.endswith(".gz") else
                 contextlib.nullcontext(raw)) as f:
            for task, length, prompt, answer in prompts:
                line = {"task": task, "length": length, "prompt": prompt, "answer": answer}
                f.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                count.setdefault((task, length), []).append(len(prompt) + len(answer))
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)
    for (task, length), sizes in count.items():
        print(f"{task} {length}: {len(sizes)} prompts of {min(sizes)} to {max(sizes)} tokens")


def task_list(text):
    tasks = text.split(",")
    for task in tasks:
        if task not in TASKS:
            raise argparse.ArgumentTypeError(f"no task '{task}'; known are " + ", ".join(TASKS))
    return tasks


def length_list(text):
    lengths = [int(part) for part in text.split(",")]
    if min(lengths) < 1:
        raise ValueError
    return lengths


def ruler_file(text):
    task, sign, path = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError("want TASK=FILE")
    return task, path


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tokenizer", required=True, metavar="FILE", help="a tokenizer.json")
    p.add_argument("-o", "--out", required=True, metavar="FILE",
                   help="JSON lines to write; compressed if the name ends in .gz")
    p.add_argument("--lengths", type=length_list, metavar="LIST",
                   default=[1024 << i for i in range(2, 8)],
                   help="tokens of prompt and answer (default: 4096, 8192, ... 131072)")
    p.add_argument("--tasks", type=task_list, default=list(TASKS), metavar="LIST",
                   help="default: all")
    p.add_argument("--count", type=int, default=100, metavar="N",
                   help="prompts of each task and length (default: 100)")
    p.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    p.add_argument("--haystack", metavar="NAME",
                   help="text around the needles of numbers and of vt: sentences, noise, or a "
                        "file of your own (default: sentences, for vt noise)")
    p.add_argument("--shots", type=int, choices=(0, 1), default=1,
                   help="examples before the prompt of vt and cwe (default: 1)")
    p.add_argument("--wording", choices=WORDINGS, default="plain", help="default: plain")
    p.add_argument("--before", default="", metavar="TEXT",
                   help="text before each prompt, such as a special token or a chat's turn")
    p.add_argument("--after", default="", metavar="TEXT",
                   help="text behind the question and before 'Answer:'")
    p.add_argument("--end", default="\n", metavar="TEXT",
                   help="text that ends each answer (default: a line's end)")
    p.add_argument("--ruler", type=ruler_file, action="append", metavar="TASK=FILE",
                   help="encode a file of RULER instead; may be given several times")
    return p.parse_args()


def main():
    options = parse_args()
    try:
        if options.haystack:
            options.haystack = HAYSTACKS.get(options.haystack) or own_text(options.haystack)
        write(options.out, ruler(options) if options.ruler else Generator(options).all())
    except (OSError, Refused) as e:
        sys.exit(f"make_tasks: {e}")


if __name__ == "__main__":
    main()
