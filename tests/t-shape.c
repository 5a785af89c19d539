/* SPDX-License-Identifier: Apache-2.0 */
/* Trace algebra: worked examples, then laws on random traces. */
#include "config.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/trace_text.h"
#include "traces/algebra/merge.h"

/* ---- helpers ---- */

/* The lines of the requests: the canonical form but for its header. */
static const char *requests(const char *canonical_text)
{
	return strchr(canonical_text, '\n') + 1;
}

/* options: "name=value,..." */
static enum ar_status shaped(struct trace **out, const char *options, struct ar_err *err)
{
	char spec[400];

	snprintf(spec, sizeof spec, "%s%s%s", path, *options ? ":" : "", options);
	*err = (struct ar_err){ 0 };
	return trace_read(out, spec, &(struct trace_args){ 0 }, err);
}

static struct trace *shape(const char *options)
{
	struct ar_err err;
	struct trace *t;

	if (!shaped(&t, options, &err))
		return t;
	diag("%s: %s", options, err.msg);
	bail_out("a trace cannot be shaped");
}

/* The arrivals in ms, "0 500 1000". */
static char *arrivals(const struct trace *t)
{
	static char text[400];
	size_t n = 0;

	*text = 0;
	for (size_t i = 0; i < t->n && n < sizeof text; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%g", i ? " " : "",
				      (double)t->req[i].arrival_ns * 1e-6);
	return text;
}

static void has_arrivals(const char *text, const char *options, const char *want, const char *what)
{
	struct trace *t;

	put(text, strlen(text));
	t = shape(options);
	is_str(arrivals(t), want, "%s", what);
	trace_free(t);
}

/* ---- worked examples ---- */

static const char bursts[] = VI "0,1,1\n0,2,2\n0,3,3\n1.5,4,4\n2,5,5\n2,6,6\n3.5,7,7\n";

static void test_times(void)
{
	has_arrivals(bursts, "shift=250ms", "250 250 250 1750 2250 2250 3750", "shift adds to all");
	has_arrivals(bursts, "rate=4", "0 0 0 750 1000 1000 1750",
		     "rate scales the span to requests / rate");
	has_arrivals(bursts, "rate=4,shift=1s", "1000 1000 1000 1750 2000 2000 2750",
		     "shift comes after rate");
	has_arrivals(bursts, "repeat=2",
		     "0 0 0 1500 2000 2000 3500 4083.33 4083.33 4083.33 "
		     "5583.33 6083.33 6083.33 7583.33",
		     "the next repetition begins one mean gap after the last");
	has_arrivals(bursts, "requests=4,repeat=3,repeat-period=2s",
		     "0 0 0 1500 2000 2000 2000 3500 4000 4000 4000 5500",
		     "repetitions start at the given period");
	has_arrivals(bursts, "repeat=2,repeat-period=3500ms,from=1s",
		     "0 500 500 2000 3500 4000 4000 5500", "windows come before repetitions");
}

static void test_spread(void)
{
	struct trace *t;

	has_arrivals(bursts, "spread=even,spread-step=3s", "0 500 1000 1500 2000 2750 3500",
		     "a step ends at the next arrival");
	has_arrivals(bursts, "spread=even,spread-step=300ms", "0 100 200 1500 2000 2150 3500",
		     "or when it is over");
	has_arrivals(bursts, "spread=even,requests=6", "0 166.667 333.333 1500 2000 2250",
		     "it is the shortest gap when not given");
	put(bursts, strlen(bursts));
	t = shape("spread=random,spread-step=300ms,trace-seed=3");
	ok(t->req[2].arrival_ns < 300000000 && t->req[3].arrival_ns >= 1500000000 &&
		   t->req[3].arrival_ns < 1800000000 &&
		   t->req[0].arrival_ns < t->req[1].arrival_ns &&
		   t->req[1].arrival_ns < t->req[2].arrival_ns,
	   "random offsets stay inside of the step and keep the order");
	trace_free(t);
}

/* Blocks of four tokens; the prompts of 0 and 1 share eight, that of 2 shares four with them. */
#define HEAD(n) "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":4,\"requests\":" #n "}\n"
static const char prefixes[] = HEAD(
	4) "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":10,\"output_tokens\":1,"
	   "\"blocks\":[5,6,7]}\n"
	   "{\"id\":1,\"arrival_ns\":1,\"prompt_tokens\":12,\"output_tokens\":2,\"session\":\"s\","
	   "\"turn\":0,\"think_ns\":5,\"blocks\":[5,6,8],\"label\":\"a\"}\n"
	   "{\"id\":2,\"arrival_ns\":2,\"prompt_tokens\":5,\"output_tokens\":3,\"session\":\"s~2\","
	   "\"turn\":0,\"blocks\":[5,9],\"label\":\"b\"}\n"
	   "{\"id\":3,\"arrival_ns\":4,\"prompt_tokens\":7,\"output_tokens\":4,\"session\":\"s\","
	   "\"turn\":1,\"label\":\"a\"}\n";

static void is_lines(const char *options, const char *want, const char *what)
{
	struct trace *t = shape(options);
	char *text = canonical(t);

	is_str(requests(text), want, "%s", what);
	free(text);
	trace_free(t);
}

static void test_blocks(void)
{
	put(prefixes, strlen(prefixes));
	is_lines("prompt-scale=2,requests=3",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":20,\"output_tokens\":1,\"blocks\":"
		 "[0,1,2,3,4]}\n"
		 "{\"id\":1,\"arrival_ns\":1,\"prompt_tokens\":24,\"output_tokens\":2,\"session\":"
		 "\"s\",\"turn\":0,\"think_ns\":5,\"blocks\":[0,1,2,3,5,6],\"label\":\"a\"}\n"
		 "{\"id\":2,\"arrival_ns\":2,\"prompt_tokens\":10,\"output_tokens\":3,\"session\":"
		 "\"s~2\",\"turn\":0,\"blocks\":[0,1,7],\"label\":\"b\"}\n",
		 "twice the prompt, twice the shared prefix");
	is_lines("prompt-scale=0.5,requests=3",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":5,\"output_tokens\":1,\"blocks\":"
		 "[0,1]}\n"
		 "{\"id\":1,\"arrival_ns\":1,\"prompt_tokens\":6,\"output_tokens\":2,\"session\":"
		 "\"s\",\"turn\":0,\"think_ns\":5,\"blocks\":[0,2],\"label\":\"a\"}\n"
		 "{\"id\":2,\"arrival_ns\":2,\"prompt_tokens\":3,\"output_tokens\":3,\"session\":"
		 "\"s~2\",\"turn\":0,\"blocks\":[3],\"label\":\"b\"}\n",
		 "half of eight shared tokens is one block");
	is_lines("type=a,output-scale=0.3,time-scale=3",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":12,\"output_tokens\":1,\"session\":"
		 "\"s\",\"turn\":0,\"think_ns\":15,\"blocks\":[5,6,8],\"label\":\"a\"}\n"
		 "{\"id\":1,\"arrival_ns\":9,\"prompt_tokens\":7,\"output_tokens\":1,"
		 "\"session\":\"s\",\"turn\":1,\"label\":\"a\"}\n",
		 "requests of a type; outputs of at least one token; pauses scale with the time");
	is_lines("longest-prompt=7",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":5,\"output_tokens\":3,\"session\":"
		 "\"s~2\",\"turn\":0,\"blocks\":[5,9],\"label\":\"b\"}\n"
		 "{\"id\":1,\"arrival_ns\":2,\"prompt_tokens\":7,\"output_tokens\":4,\"session\":"
		 "\"s\",\"turn\":1,\"label\":\"a\"}\n",
		 "no longer prompts, and the first one left is at 0");
	is_lines("skip-requests=1,repeat=2,requests=2,repeat-period=9ns",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":12,\"output_tokens\":2,\"session\":"
		 "\"s\",\"turn\":0,\"think_ns\":5,\"blocks\":[0,1,2],\"label\":\"a\"}\n"
		 "{\"id\":1,\"arrival_ns\":1,\"prompt_tokens\":5,\"output_tokens\":3,\"session\":"
		 "\"s~2\",\"turn\":0,\"blocks\":[0,3],\"label\":\"b\"}\n"
		 "{\"id\":2,\"arrival_ns\":9,\"prompt_tokens\":12,\"output_tokens\":2,\"session\":"
		 "\"s~3\",\"turn\":0,\"think_ns\":5,\"blocks\":[4,5,6],\"label\":\"a\"}\n"
		 "{\"id\":3,\"arrival_ns\":10,\"prompt_tokens\":5,\"output_tokens\":3,\"session\":"
		 "\"s~2~2\",\"turn\":0,\"blocks\":[4,7],\"label\":\"b\"}\n",
		 "a repetition has prefixes and sessions of its own");
	is_lines("requests=1,repeat=2,repeat-period=9ns,repeat-prefixes=1",
		 "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":10,\"output_tokens\":1,\"blocks\":"
		 "[5,6,7]}\n"
		 "{\"id\":1,\"arrival_ns\":9,\"prompt_tokens\":10,\"output_tokens\":1,\"blocks\":"
		 "[5,6,7]}\n",
		 "a repetition may share its prefixes");
}

/* ---- merging ---- */

static char other[80];

static struct trace *merge(const char *spec, const char *options, int align, struct ar_err *err)
{
	char both[2][200], *more = both[1];
	struct trace *t;

	snprintf(both[0], sizeof both[0], "%s%s", path, spec);
	snprintf(both[1], sizeof both[1], "%s%s", other, options);
	return trace_read(&t, both[0],
			  &(struct trace_args){ .merge = { &more, 1 }, .align = align }, err) ?
		       NULL :
		       t;
}

static void test_merge(void)
{
	static const char more[] = HEAD(
		2) "{\"id\":0,\"arrival_ns\":1,\"prompt_tokens\":9,\"output_tokens\":5,\"session\":"
		   "\"s\",\"turn\":0,\"blocks\":[5,6,7],\"label\":\"b\"}\n"
		   "{\"id\":1,\"arrival_ns\":3,\"prompt_tokens\":4,\"output_tokens\":6,"
		   "\"blocks\":[5],\"label\":\"c\"}\n";
	struct ar_err err;
	struct trace *t;
	char *text;

	put(prefixes, strlen(prefixes));
	file_write(other, more, strlen(more));
	t = merge(":requests=2", ":time-scale=2", ALIGN_START, &err);
	if (!t)
		bail_out("no merge");
	text = canonical(t);
	is_str(requests(text),
	       "{\"id\":0,\"arrival_ns\":0,\"prompt_tokens\":10,\"output_tokens\":1,"
	       "\"blocks\":[0,1,2]}\n"
	       "{\"id\":1,\"arrival_ns\":1,\"prompt_tokens\":12,\"output_tokens\":2,"
	       "\"session\":\"s\",\"turn\":0,\"think_ns\":5,\"blocks\":[0,1,3],\"label\":\"a\"}\n"
	       "{\"id\":2,\"arrival_ns\":2,\"prompt_tokens\":9,\"output_tokens\":5,\"session\":"
	       "\"s~3\",\"turn\":0,\"blocks\":[4,5,6],\"label\":\"b\"}\n"
	       "{\"id\":3,\"arrival_ns\":6,\"prompt_tokens\":4,\"output_tokens\":6,\"blocks\":[4],"
	       "\"label\":\"c\"}\n",
	       "traces merge, each with its own options, prefixes and sessions");
	ok(strstr(text, "\"transforms\":[\"requests=2\",\"time-scale=2\",\"merge=other\"]") &&
		   cJSON_GetArraySize(t->sources) == 2 && !strcmp(t->name, "trace+other") &&
		   strlen(t->sha256) == 64,
	   "and say where they are from");
	free(text);
	trace_free(t);
	ok(!merge("", "", ALIGN_CLOCK, &err) && err.status == AR_USAGE &&
		   strstr(err.msg, "has no dates"),
	   "what has no date cannot be aligned by it");
	ok(!merge("", ":keep=2", ALIGN_START, &err) && err.status == AR_USAGE &&
		   strstr(err.msg, "other: keep '2': want a number"),
	   "a bad option names its file");
	ok(!merge("", ":merge=x", ALIGN_START, &err) && err.status == AR_USAGE,
	   "no merge in a merge");
	ok(!merge("", ":keep", ALIGN_START, &err) && err.status == AR_DATA,
	   "a colon without an assignment belongs to the name");
	ok(!merge("", ":keep=1,x", ALIGN_START, &err) && strstr(err.msg, "'x': want NAME=VALUE"),
	   "an assignment has a value");
	file_write(other, dialogue, strlen(dialogue));
	ok(!merge("", "", ALIGN_START, &err) && err.status == AR_USAGE &&
		   strstr(err.msg, "prefix blocks of 4 tokens, other of 512"),
	   "block sizes must agree");
	file_write(other, VI "0,1,1\n", strlen(VI "0,1,1\n"));
	t = merge("", ":shift=3ns", ALIGN_START, &err);
	ok(t && t->n == 5 && t->block_tok == 4 && !t->req[3].n_block && t->req[3].arrival_ns == 3,
	   "a trace without prefixes merges with one that has them");
	trace_free(t);
}

/* Options of reading are given for all files, or for one. */
static void test_merge_reading(void)
{
	static const char twice[] = VI "0,1,1\n604453,2,1\n0,3,1\n";
	static const struct import_args sort = { .restart = RESTART_SORT };
	char spec[100], *more = spec;
	struct trace_args a = { .in = sort, .merge = { &more, 1 } };
	struct ar_err err;
	struct trace *t;

	put(twice, strlen(twice));
	file_write(other, twice, strlen(twice));
	snprintf(spec, sizeof spec, "%s", other);
	ok(!trace_read(&t, path, &a, &err) && t->n == 6, "a merged file is read as the first one");
	trace_free(t);
	snprintf(spec, sizeof spec, "%s:restart=error", other);
	ok(trace_read(&t, path, &a, &err) == AR_DATA && strstr(err.msg, "other:4: "),
	   "unless its own options say otherwise");
}

static void test_merge_dates(void)
{
	static const char early[] = AZ "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:50,2,2\n",
			  late[] = AZ "2023-11-16 18:15:48,3,3\n2023-11-16 18:15:50,4,4\n";
	struct ar_err err;
	struct trace *t;

	for (int swap = 0; swap < 2; swap++) {
		put(swap ? late : early, sizeof early - 1);
		file_write(other, swap ? early : late, sizeof early - 1);
		t = merge("", "", ALIGN_CLOCK, &err);
		is_str(t ? arrivals(t) : "", "0 2000 4000 4000", "dates put traces on one axis");
		ok(t && t->has_epoch && t->epoch_ns == 1700158546000000000 &&
			   t->req[2].prompt_tok == (swap ? 4 : 2),
		   "which begins with the first of both");
		trace_free(t);
	}
	t = merge("", "", ALIGN_START, &err);
	ok(t && !t->has_epoch, "without dates there is no absolute time");
	trace_free(t);
}

/* ---- laws ---- */

enum { N_REQ = 120, BLOCK = 16 };

/* A random trace of n requests with sessions, types and prefixes that form a tree. */
static void put_requests(uint64_t seed, int n)
{
	static const char *const types[] = { "", ",\"label\":\"chat\"", ",\"label\":\"code\"" };
	struct rng rng = { seed };
	char *text = NULL;
	int64_t at = 0;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int turn[8] = { 0 };

	fprintf(f, "{\"format\":\"reqtrace\",\"version\":1,\"block_size\":%d,\"requests\":%d}\n",
		BLOCK, n);
	for (int i = 0; i < n; i++) {
		uint32_t prompt = 1 + (uint32_t)rng_below(&rng, 8 * BLOCK), s;
		uint64_t id = 1;

		if (i && rng_below(&rng, 3))
			at += (int64_t)rng_below(&rng, 2000000000);
		fprintf(f,
			"{\"id\":%d,\"arrival_ns\":%" PRId64 ",\"prompt_tokens\":%u,"
			"\"output_tokens\":%d",
			i, at, prompt, 1 + (int)rng_below(&rng, 300));
		s = (uint32_t)rng_below(&rng, 16);
		if (s < 8)
			fprintf(f, ",\"session\":\"u%u\",\"turn\":%d", s, turn[s]++);
		for (uint32_t k = 0; k * BLOCK < prompt; k++) {
			bool last = (k + 1) * BLOCK > prompt;

			id = last ? 1000000 + (uint64_t)i : 3 * id + (k ? rng_below(&rng, 2) : 0);
			fprintf(f, "%s%" PRIu64, k ? "," : ",\"blocks\":[", id);
		}
		fprintf(f, "]%s}\n", types[rng_below(&rng, 3)]);
	}
	fclose(f);
	put(text, size);
	free(text);
}

static void put_random(uint64_t seed)
{
	put_requests(seed, N_REQ);
}

/* Invariants of every trace.  Reading the canonical form finds ids that are not chained. */
static bool sane(const struct trace *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		if (q->arrival_ns < 0 || (i && q->arrival_ns < q[-1].arrival_ns) ||
		    q->prompt_tok < 1 || q->output_tok < 1 || q->run + q->n_run > t->n_run ||
		    q->session >= (int64_t)t->n_session || q->type > t->n_type ||
		    (q->n_block && q->n_block != (q->prompt_tok + BLOCK - 1) / BLOCK))
			return false;
	}
	return t->n > 0;
}

static uint32_t shared_blocks(const struct trace *t, size_t i, size_t j)
{
	const struct request *a = &t->req[i], *b = &t->req[j];
	uint32_t k = 0;

	while (k < a->n_block && k < b->n_block && trace_block(t, a, k) == trace_block(t, b, k))
		k++;
	return k;
}

static double shared_tokens(const struct trace *t, size_t i, size_t j)
{
	double n = BLOCK * shared_blocks(t, i, j);

	return fmin(n, fmin(t->req[i].prompt_tok, t->req[j].prompt_tok));
}

/* Options applied one after another, through a file, make the same trace as all at once. */
static void is_composed(const char *first, const char *second, bool all_bytes)
{
	char both[200], *want, *text;
	struct trace *t = shape(first);
	char *half = canonical(t), *source = NULL;
	struct ar_err err;
	size_t n = 0;
	FILE *f = fopen(path, "r");

	trace_free(t);
	if (!f || getdelim(&source, &n, 0, f) < 0)
		bail_out("cannot read the trace");
	fclose(f);
	snprintf(both, sizeof both, "%s,%s", first, second);
	t = shape(both);
	want = canonical(t);
	trace_free(t);
	put(half, strlen(half));
	if (shaped(&t, second, &err))
		bail_out("%s", err.msg);
	text = canonical(t);
	trace_free(t);
	is_str(all_bytes ? text : requests(text), all_bytes ? want : requests(want),
	       "%s, then %s, is both at once", first, second);
	put(source, strlen(source));
	free(source);
	free(half);
	free(want);
	free(text);
}

static void test_composition(void)
{
	static const char *const steps[] = {
		"spread=random,spread-step=700ms,trace-seed=5",
		"from=5s,to=60s",
		"type=chat",
		"longest-prompt=400",
		"keep=0.7,trace-seed=9",
		"skip-requests=2,requests=20",
		"prompt-scale=1.7",
		"output-scale=0.4",
		"max-prompt-tokens=90",
		"max-output-tokens=50",
		"repeat=3",
		"time-scale=0.3",
		"shift=2s",
	};
	enum { N = sizeof steps / sizeof *steps };

	for (int i = 0; i < N; i++)
		for (int j = i + 1; j < N; j++)
			if (strncmp(steps[i], "spread", 6) || strncmp(steps[j], "keep", 4))
				is_composed(steps[i], steps[j], true);
	is_composed("repeat=2", "rate=7", true);
}

/* Two factors one after another are their product but for the rounding of each. */
static void is_product(const char *option, double a, double b)
{
	char text[3][60], *half;
	struct trace *once, *twice;
	int64_t off = 0;
	struct ar_err err;

	snprintf(text[0], sizeof text[0], "%s=%g", option, a);
	snprintf(text[1], sizeof text[1], "%s=%g", option, b);
	snprintf(text[2], sizeof text[2], "%s=%.17g", option, a * b);
	once = shape(text[2]);
	twice = shape(text[0]);
	half = canonical(twice);
	trace_free(twice);
	put(half, strlen(half));
	if (shaped(&twice, text[1], &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < once->n; i++) {
		const struct request *x = &once->req[i], *y = &twice->req[i];
		int64_t d = llabs(x->arrival_ns - y->arrival_ns);

		d = fmax(d, fabs((double)x->prompt_tok - y->prompt_tok));
		d = fmax(d, fabs((double)x->output_tok - y->output_tok));
		off = d > off ? d : off;
	}
	ok(once->n == twice->n && off <= 1 + (int64_t)b, "%s by %g and %g is by the product",
	   option, a, b);
	free(half);
	trace_free(once);
	trace_free(twice);
}

static void test_sane(uint64_t seed)
{
	/* clang-format off */
	static const char *const options[] = {
		"spread=even", "spread=random,spread-step=1h", "keep=0.5", "type=chat,type=code",
		"prompt-scale=0.3", "prompt-scale=2.5", "prompt-scale=1e-6", "output-scale=3",
		"repeat=5", "repeat=3,repeat-prefixes=1,prompt-scale=0.77,max-prompt-tokens=33",
		"rate=1000", "rate=0.001", "time-scale=1e-6", "shift=1h,from=3s",
		"skip-requests=10,keep=0.5,repeat=2", "max-prompt-tokens=1",
	};
	/* clang-format on */
	struct ar_err err;
	struct trace *t;

	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		char *text, *again;

		put_random(seed);
		t = shape(options[i]);
		ok(sane(t), "seed %d, %s: sorted, complete and in bounds", (int)seed, options[i]);
		text = canonical(t);
		trace_free(t);
		put(text, strlen(text));
		t = NULL;
		again = shaped(&t, "", &err) ? strdup(err.msg) : canonical(t);
		is_str(again, text, "seed %d, %s: what is written is read", (int)seed, options[i]);
		trace_free(t);
		free(text);
		free(again);
	}
}

/* The line of a request in the file tells where it is from. */
static void test_prefix_laws(uint64_t seed)
{
	static const double scales[] = { 0.1, 0.25, 0.5, 0.9, 1.3, 2, 3.7 };
	struct trace *t, *s;
	size_t bad = 0, pairs = 0;

	put_random(seed);
	t = shape("");
	for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
		char text[40];

		snprintf(text, sizeof text, "prompt-scale=%g", scales[k]);
		s = shape(text);
		for (size_t i = 0; i < t->n; i++)
			for (size_t j = 0; j < i; j++) {
				double was = shared_tokens(t, i, j) * scales[k];
				double now = shared_tokens(s, i, j);

				pairs += now > 0;
				bad += now > was + 0.5 || now < was - BLOCK - 0.5;
			}
		trace_free(s);
	}
	ok(!bad && pairs, "seed %d: shared prefixes scale with the prompts, in whole blocks",
	   (int)seed);
	s = shape("repeat=3");
	ok(s->n == 3 * t->n, "seed %d: n repetitions have n times the requests", (int)seed);
	bad = 0;
	for (size_t i = 0; i < s->n; i++)
		for (size_t j = 0; j < i; j++) {
			bool same = i / t->n == j / t->n;

			bad += shared_blocks(s, i, j) !=
			       (same ? shared_blocks(t, i % t->n, j % t->n) : 0);
			bad += s->req[i].session >= 0 && !same &&
			       s->req[i].session == s->req[j].session;
		}
	is_int((long long)bad, 0,
	       "seed %d: a repetition shares what the trace does, and nothing else", (int)seed);
	trace_free(s);
	trace_free(t);
}

/* Are two requests to be kept or left out together? */
static bool together(const struct trace *t, size_t i, size_t j)
{
	const struct request *a = &t->req[i], *b = &t->req[j];

	if (a->session >= 0 || b->session >= 0)
		return a->session == b->session;
	return shared_blocks(t, i, j) > 1; /* all begin with the same block */
}

static void test_thin(uint64_t seed)
{
	bool in[2][N_REQ + 2] = { { false } };
	size_t bad = 0, n = 0;
	struct trace *t;

	put_random(seed);
	for (int k = 0; k < 2; k++) {
		t = shape(k ? "keep=0.6,trace-seed=4" : "keep=0.3,trace-seed=4");
		for (size_t i = 0; i < t->n; i++)
			in[k][t->req[i].line - 2] = true;
		trace_free(t);
	}
	t = shape("");
	for (size_t i = 0; i < t->n; i++) {
		bad += in[0][i] && !in[1][i];
		n += in[1][i];
		for (size_t j = 0; j < i; j++)
			bad += together(t, i, j) && in[1][i] != in[1][j];
	}
	ok(!bad && n && n < t->n,
	   "seed %d: sessions and prefixes stay whole, and a larger share holds the smaller",
	   (int)seed);
	trace_free(t);
}

/* Without sessions or prefixes each request is drawn on its own. */
static void test_thin_share(void)
{
	enum { N = 20000 };
	char *text = NULL;
	size_t size, n;
	FILE *f = open_memstream(&text, &size);
	struct trace *t;

	fputs(VI, f);
	for (int i = 0; i < N; i++)
		fprintf(f, "%d,%d,1\n", i, i + 1);
	fclose(f);
	put(text, size);
	free(text);
	t = shape("keep=0.25");
	n = t->n;
	trace_free(t);
	/* four standard deviations of the binomial distribution are 245 */
	ok(n > N / 4 - 245 && n < N / 4 + 245, "a share of requests is kept (%zu of %d)", n, N);
	t = shape("keep=0.25,trace-seed=1");
	ok(t->n != n, "other seeds keep others");
	trace_free(t);
}

/* ---- sessions ---- */

#define LINE(id, ms, in, ses, turn, more) \
	"{\"id\":" #id ",\"arrival_ns\":" #ms "000000,\"prompt_tokens\":" #in \
	",\"output_tokens\":1,\"session\":\"" ses "\",\"turn\":" #turn more "}\n"

/* Session a has a long turn 2, and starts x after turn 1 and z after turn 2.  b starts y, whose
 * first turn is long. */
static const char trees[] =
	"{\"format\":\"reqtrace\",\"version\":1,\"block_size\":4,\"requests\":10}\n" LINE(
		0, 1, 4, "a", 0, "") LINE(1, 2, 4, "b", 0, "")
		LINE(2, 3, 30, "y", 0, ",\"x_after\":1") LINE(3, 4, 8, "a", 1, "")
			LINE(4, 5, 4, "y", 1, "") LINE(5, 6, 4, "x", 0, ",\"x_after\":3") LINE(
				6, 7, 20, "a", 2, ",\"blocks\":[0,1,2,3,4]") LINE(7, 8, 5, "z", 0,
										  ",\"x_after\":6")
				LINE(8, 9, 6, "a", 3,
				     "") "{\"id\":9,\"arrival_ns\":10000000,\"prompt_tokens\":15,"
					 "\"output_tokens\":1}\n";

/* "a0@1 ...": session, turn, and the arrival in ms. */
static void has_turns(const char *options, const char *want)
{
	char text[400] = "";
	struct trace *t;
	size_t n = 0;

	put(trees, strlen(trees));
	t = shape(options);
	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%u@%g", i ? " " : "",
				      q->session < 0 ? "-" : t->session[q->session], q->turn,
				      (double)q->arrival_ns * 1e-6);
	}
	is_str(text, want, "%s", options);
	trace_free(t);
}

static void test_over_length(void)
{
	const struct request *q;
	struct trace *t;

	has_turns("longest-request=31", "a0@1 b0@2 y0@3 a1@4 y1@5 x0@6 a2@7 z0@8 a3@9 -0@10");
	has_turns("longest-request=12", "a0@1 b0@2 a1@4 x0@6");
	has_turns("longest-request=12,over-length=stop", "a0@1 b0@2 a1@4 x0@6");
	has_turns("longest-request=12,over-length=drop", "b0@0");
	has_turns("longest-request=12,over-length=skip", "a0@1 b0@2 a1@4 y1@5 x0@6 z0@8 a3@9");
	t = shape("longest-request=12,over-length=skip");
	ok(t->link[t->req[5].session].after == 1, "z starts after the turn before now");
	trace_free(t);
	has_turns("longest-request=12,over-length=clip",
		  "a0@1 b0@2 y0@3 a1@4 y1@5 x0@6 a2@7 z0@8 a3@9 -0@10");
	t = shape("longest-request=12,over-length=clip");
	q = &t->req[6];
	ok(q->prompt_tok == 11 && q->output_tok == 1 && q->n_block == 3 &&
		   trace_block(t, q, 1) == 1 && trace_block(t, q, 2) > 4,
	   "a prompt that is cut has a last block of its own");
	trace_free(t);
	put(VI "0,9,9\n1,1,1\n", strlen(VI "0,9,9\n1,1,1\n"));
	t = shape("longest-request=5,over-length=clip");
	ok(t->req[0].prompt_tok == 1 && t->req[0].output_tok == 4, "a long output is cut as well");
	trace_free(t);
}

static void test_starts(void)
{
	struct trace *t;
	double sum;

	has_turns("session-starts=zero", "a0@0 b0@0 -0@0 y0@1 a1@3 y1@3 x0@5 a2@6 z0@7 a3@8");
	has_turns("session-starts=constant:100",
		  "a0@0 a1@3 x0@5 a2@6 z0@7 a3@8 b0@10 y0@11 y1@13 -0@20");
	has_turns("session-starts=constant:100,session-order=shuffle,trace-seed=1",
		  "b0@0 y0@1 y1@3 -0@10 a0@20 a1@23 x0@25 a2@26 z0@27 a3@28");
	put(bursts, strlen(bursts));
	t = shape("repeat=300,repeat-period=9s,session-starts=poisson:20");
	sum = (double)t->req[t->n - 1].arrival_ns * 1e-9;
	/* the sum of 2099 gaps of 50 ms, with four standard deviations of it */
	ok(fabs(sum - 2099 * 0.05) < 4 * sqrt(2099) * 0.05,
	   "starts at random have their rate: %g s", sum);
	trace_free(t);
}

/* ---- faults ---- */

static void test_refused(void)
{
	static const struct {
		const char *text, *options, *message;
	} refused[] = {
		{ VI "0,1,1\n", "longest-request=1", "is left; check --longest-request" },
		{ VI "0,1,1\n", "over-length=clip", "has no effect without --longest-request" },
		{ VI "0,1,1\n", "session-order=shuffle", "has no effect without --session-starts" },
		{ VI "0,1,1\n", "session-starts=now",
		  "--session-starts 'now': want zero, poisson:RATE or constant:RATE" },
		{ VI "0,1,1\n", "session-starts=poisson:0", "with sessions a second" },
		{ VI "0,1,1\n2,1,1\n", "session-starts=constant:1e-10", "beyond 2^63 ns" },
		{ VI "0,1,1\n", "rate=1", "--rate 1: requests that arrive together have no rate" },
		{ VI "0,1,1\n0,1,1\n", "spread=even",
		  "all requests arrive together; set --spread-step" },
		{ VI "0,1,1\n", "repeat=2",
		  "--repeat: all requests arrive together; set --repeat-period" },
		{ VI "0,1,1\n2,1,1\n", "repeat=2,repeat-period=1s",
		  "--repeat-period is shorter than the trace, which takes 2.000000000 s" },
		{ VI "0,1,1\n2,1,1\n", "repeat=1000000000,repeat-period=100s", "beyond 2^63 ns" },
		{ VI "0,1,1\n1e-9,1,1\n0,1,1\n0,1,1\n0,1,1\n",
		  "repeat=1000000000,repeat-period=1ns",
		  "--repeat 1000000000 makes too many requests" },
		{ VI "0,1,1\n2,1,1\n", "rate=1e-10",
		  "--rate 1e-10: arrivals would go beyond 2^63 ns" },
		{ VI "0,1,1\n9e9,1,1\n", "shift=2540400h", "beyond 2^63 ns" },
		{ VI "0,1,1\n9e9,1,1\n", "spread=even,spread-step=2540400h", "beyond 2^63 ns" },
		{ VI "0,1,1\n", "type=a", "no request is of type 'a'; the types are: none" },
		{ prefixes, "longest-prompt=4", "--longest-prompt" },
		{ prefixes, "type=c", "no request is of type 'c'; the types are: a, b" },
		{ prefixes, "to=1ns,type=b", "none of its 1 requests is left; check --type" },
		{ VI "0,1,1\n", "keep=1e-9", "none of its 1 requests is left; check --keep" },
		{ VI "0,3000,1\n", "prompt-scale=1e6",
		  "--prompt-scale 1e+06: a prompt of 3000 tokens" },
		{ VI "0,1,3000\n", "output-scale=1e6",
		  "--output-scale 1e+06: an output of 3000 tokens" },
		{ VI "0,1,1\n", "rate=1,time-scale=2", "--rate and --time-scale both scale" },
		{ VI "0,1,1\n", "spread-step=1s", "--spread-step has no effect without --spread" },
		{ VI "0,1,1\n", "repeat-period=1s",
		  "--repeat-period has no effect without --repeat" },
		{ VI "0,1,1\n", "repeat-prefixes=1", "--repeat-prefixes has no effect without" },
		{ VI "0,1,1\n", "align=clock", "--align has no effect without --merge" },
		{ VI "0,1,1\n", "no=1", "unknown option 'no'" },
	};
	struct ar_err err;
	struct trace *t;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		enum ar_status st;

		put(refused[i].text, strlen(refused[i].text));
		st = shaped(&t, refused[i].options, &err);
		ok(st && !t && strstr(err.msg, refused[i].message) && strstr(err.msg, path),
		   "%s is refused: %s", refused[i].options, err.msg);
	}
}

static void test_survival(void)
{
	static const char *const options[] = {
		"spread=random",
		"type=chat,type=code",
		"keep=0.5",
		"prompt-scale=2.1",
		"repeat=3",
		"rate=3,shift=1s,output-scale=2",
		"longest-request=999,session-starts=zero",
		"longest-request=99,over-length=clip",
	};
	cJSON_Hooks hooks = { malloc, free };
	struct ar_err err;
	struct trace *t;

	cJSON_InitHooks(&hooks);
	put_requests(1, 30); /* the time goes with the square of it */
	file_write(other, dialogue, strlen(dialogue));
	for (size_t i = 0; i <= sizeof options / sizeof *options; i++) {
		bool merging = i == sizeof options / sizeof *options;
		long n = 0, bad = 0;

		if (merging)
			put(dialogue, strlen(dialogue));
		for (long k = 0;; k++, n++) {
			bool fired, failed;

			fault_arm(k);
			if (merging) {
				t = merge("", ":repeat=2", ALIGN_START, &err);
				failed = !t;
			} else {
				failed = shaped(&t, options[i], &err);
			}
			fired = fault_disarm();
			trace_free(t);
			if (!fired)
				break;
			bad += !failed;
		}
		ok(n > 3 && !bad, "%s: each of %ld allocations fails cleanly",
		   merging ? "merge" : options[i], n);
	}
	cJSON_InitHooks(NULL);
}

int main(void)
{
	plan(0);
	text_begin();
	snprintf(other, sizeof other, "%s/other", text_dir);
	test_times();
	test_spread();
	test_blocks();
	test_merge();
	test_merge_reading();
	test_merge_dates();
	for (uint64_t seed = 1; seed <= 3; seed++) {
		test_sane(seed);
		test_prefix_laws(seed);
		test_thin(seed);
	}
	put_random(7);
	test_composition();
	is_product("time-scale", 0.5, 3);
	put_random(8);
	is_product("output-scale", 3, 0.7);
	put_random(9);
	is_product("prompt-scale", 2, 1.5);
	test_thin_share();
	test_over_length();
	test_starts();
	test_refused();
	test_survival();
	unlink(other);
	text_end();
	return done_testing();
}
