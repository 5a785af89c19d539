/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/letters.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

void letters_put(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t->n += (size_t)vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
	va_end(ap);
	if (t->n >= sizeof t->s)
		bail_out("the text of a scenario is too long");
}

/* The id of a block says all up to its end; an unfilled one has its own. */
static uint64_t text_id(const char *text, size_t n, bool filled)
{
	uint64_t h = rng_mix(n << 1 | filled);

	for (size_t i = 0; i < n; i++)
		h = rng_mix(h ^ (uint64_t)text[i]);
	return h;
}

void letters_add(struct trace *t, int64_t us, const char *text, uint32_t output)
{
	struct request *r = &t->req[t->n++];
	size_t len = strlen(text);

	*r = (struct request){ .arrival_ns = us * 1000,
			       .prompt_tok = (uint32_t)len,
			       .output_tok = output,
			       .run = t->n_run };
	for (size_t i = 0; t->block_tok && i < len; i += t->block_tok) {
		size_t end = i + t->block_tok;

		trace_put_block(t, r, text_id(text, end < len ? end : len, end <= len));
	}
}

void letters_draw(struct trace *t, struct rng *r, char *prompt, int n, size_t longest)
{
	for (int i = 0; i < n; i++) {
		size_t len = 1 + rng_below(r, longest - 20), like = rng_below(r, (uint64_t)i + 1);
		char *p = prompt + (size_t)i * (longest + 1);

		memmove(p, prompt + like * (longest + 1), longest + 1);
		for (size_t k = strlen(p) * rng_below(r, 5) / 4; k < len; k++)
			p[k] = (char)('a' + rng_below(r, 26));
		p[len] = '\0';
		letters_add(t, 0, p, 1);
	}
}

static void put_plan(struct text *log, const struct sched *s, int64_t now,
		     void (*tables)(struct text *log, const struct sched *s,
				    const struct sched_seq *q))
{
	letters_put(log, "%g-%g", (double)now / MS, (double)now / MS + 1);
	for (size_t i = 0; i < s->batch.n; i++) {
		const struct batch_entry *e = &s->batch.entry[i];

		letters_put(log, " %c:%" PRIu32 "@%" PRIu32 " [", 'A' + (int)e->req, e->n_tok,
			    e->start);
		tables(log, s, &s->seq[e->req]);
		letters_put(log, "]");
	}
	letters_put(log, "\n");
}

void letters_replay(struct sched *s, struct text *log,
		    void (*tables)(struct text *log, const struct sched *s,
				   const struct sched_seq *q))
{
	const struct trace *t = s->trace;
	size_t next = 0;

	for (int64_t now = 0; next < t->n || s->n_waiting || s->n_running; now += MS) {
		if (!s->n_waiting && !s->n_running && now < t->req[next].arrival_ns)
			now = t->req[next].arrival_ns;
		for (; next < t->n && t->req[next].arrival_ns <= now; next++)
			sched_arrive(s, (uint32_t)next, t->req[next].arrival_ns);
		sched_begin(s);
		s->lim.policy->compose(s);
		put_plan(log, s, now, tables);
		sched_emit(s);
		sched_retire(s);
	}
}

void letters_fail(const struct trace *t, const struct sched_limits *lim, long least)
{
	struct ar_err err = { 0 };
	struct sched *s;
	enum ar_status st;
	bool fired;
	int bad = 0;
	long k = 0;

	do {
		fault_arm(k++);
		st = sched_open(&s, t, lim, &err);
		fired = fault_disarm();
		bad += fired && (st != AR_NOMEM || s);
		sched_close(s);
	} while (fired);
	ok(!bad && !st && k > least, "each of %ld allocations can fail", k - 1);
}
