/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in the formats of other programs: what a format keeps is the same when read again. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/trace_text.h"
#include "traces/trace_writers.h"

enum { BLOCK = 7, TURNS = 120, SESSIONS = 9 };

/* Sessions of new tokens, whose first prompts begin alike. */
static struct trace *sessions(uint64_t seed)
{
	struct trace_args a = { .in.hash_tok = BLOCK, .in.context = CONTEXT_DELTA };
	struct rng rng = { seed };
	int turns[SESSIONS] = { 0 };
	unsigned id = 100;
	char *text = NULL;
	size_t n;
	struct ar_err err;
	struct trace *t;
	FILE *f = open_memstream(&text, &n);

	for (int i = 0; i < TURNS; i++) {
		int s = (int)rng_below(&rng, SESSIONS);
		unsigned len = 1 + (unsigned)rng_below(&rng, 3 * BLOCK);

		fprintf(f, "{\"session_id\":\"s, \\\"%d\\\"\",\"timestamp\":%d.%d,", s, 40 * i,
			(int)rng_below(&rng, 1000));
		if (turns[s] && rng_below(&rng, 2))
			fprintf(f, "\"delay\":%d.5,", (int)rng_below(&rng, 9));
		fprintf(f, "\"input_length\":%u,\"output_length\":%u,\"hash_ids\":[", len,
			1 + (unsigned)rng_below(&rng, 2 * BLOCK));
		for (unsigned k = 0; k < (len + BLOCK - 1) / BLOCK; k++)
			fprintf(f, "%s%u", k ? "," : "",
				!turns[s] && rng_below(&rng, 3) ? k : id++);
		fputs("]}\n", f);
		turns[s]++;
	}
	fclose(f);
	a.in.time_unit = UNIT_MS;
	t = read_with(text, &a, &err);
	free(text);
	if (!t)
		bail_out("%s", err.msg);
	return t;
}

/* Blocks at the start of two prompts that are the same. */
static uint32_t shared(const struct trace *t, size_t i, size_t k)
{
	const struct request *a = &t->req[i], *b = &t->req[k];
	uint32_t n = 0;

	while (n < a->n_block && n < b->n_block && trace_block(t, a, n) == trace_block(t, b, n))
		n++;
	return n;
}

static size_t count_unlike(const struct trace *t, const struct trace *u, unsigned keeps)
{
	size_t bad = t->n != u->n;

	for (size_t i = 0; i < t->n && t->n == u->n; i++) {
		const struct request *a = &t->req[i], *b = &u->req[i];

		bad += a->arrival_ns != b->arrival_ns || a->prompt_tok != b->prompt_tok ||
		       a->output_tok != b->output_tok;
		if (keeps & KEEPS_SESSIONS)
			bad += strcmp(t->session[a->session], u->session[b->session]) ||
			       a->turn != b->turn;
		if (keeps & KEEPS_THINK)
			bad += a->think_ns != b->think_ns;
		for (size_t k = 0; k < i && keeps & KEEPS_BLOCKS; k++)
			bad += shared(t, i, k) != shared(u, i, k);
	}
	return bad;
}

static void test_round_trip(const struct trace_writer *w, uint64_t seed)
{
	const bool ms = w->keeps & KEEPS_BLOCKS;
	char format[16];
	struct trace_args a = { .in.format = format,
				.in.hash_tok = ms ? BLOCK : 0,
				.in.context = w->keeps & KEEPS_THINK ? CONTEXT_DELTA : 0,
				.in.time_unit = ms ? UNIT_MS : 0 };
	struct trace *t = sessions(seed), *u = NULL;
	struct ar_err err = { 0 };
	FILE *f = fopen(path, "w");

	snprintf(format, sizeof format, "%s", w->name);
	if (!f || trace_write_as(w, t, f, &err) || fclose(f) || trace_read(&u, path, &a, &err))
		bail_out("%s: %s", w->name, err.msg);
	is_int((long long)count_unlike(t, u, w->keeps), 0, "%s: read again, seed %d", w->name,
	       (int)seed);
	trace_free(t);
	trace_free(u);
}

int main(void)
{
	FILE *full;
	struct ar_err err = { 0 };
	struct trace *t;

	text_begin();
	plan(0);
	for (const struct trace_writer *w = trace_writers; w->name; w++)
		for (uint64_t seed = 1; seed <= 5; seed++)
			test_round_trip(w, seed);
	t = sessions(1);
	full = fopen("/dev/full", "w");
	is_int(full ? trace_write_as(trace_writers, t, full, &err) : AR_IO, AR_IO,
	       "a full disk is an error");
	if (full)
		fclose(full);
	trace_free(t);
	text_end();
	return done_testing();
}
