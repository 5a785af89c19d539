/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/front.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* An output that the front end will see. */
struct output {
	int64_t at_ns;
	int64_t prompt_tok; /* of the first output; -1: the last one */
};

struct front {
	const struct front_limits *limits;
	int64_t reqs, tok;     /* as the limits count them */
	struct output *output; /* [head, n) are still to be seen, by time */
	size_t head, n;
};

enum ar_status front_open(struct front **out, const struct front_limits *limits, size_t n,
			  struct ar_err *err)
{
	struct front *f = calloc(1, sizeof *f);

	*out = f;
	if (!f)
		return ar_nomem(err);
	f->limits = limits;
	if (limits->has_reqs || limits->has_tok)
		f->output = malloc((2 * n + 1) * sizeof *f->output);
	return f->output || !(limits->has_reqs || limits->has_tok) ? AR_OK : ar_nomem(err);
}

void front_close(struct front *f)
{
	if (!f)
		return;
	free(f->output);
	free(f);
}

static void see(struct front *f, const struct output *o)
{
	if (o->prompt_tok < 0)
		f->reqs--;
	else
		f->tok -= o->prompt_tok;
}

bool front_admits(struct front *f, int64_t at_ns, uint32_t prompt_tok, char *why, size_t n)
{
	const struct front_limits *l = f->limits;

	while (f->head < f->n && f->output[f->head].at_ns <= at_ns)
		see(f, &f->output[f->head++]);
	if (l->has_reqs && f->reqs + 1 > l->reqs) {
		snprintf(why, n,
			 "HTTP 503: %" PRId64 " requests are unfinished, "
			 "max-num-queued-reqs %" PRId64,
			 f->reqs, l->reqs);
		return false;
	}
	if (l->has_tok && f->tok >= l->tok) {
		snprintf(why, n,
			 "HTTP 503: %" PRId64 " prompt tokens are queued, "
			 "max-num-queued-tokens %" PRId64,
			 f->tok, l->tok);
		return false;
	}
	f->reqs++;
	f->tok += prompt_tok;
	return true;
}

static void add(struct front *f, int64_t at_ns, int64_t prompt_tok)
{
	if (f->output)
		f->output[f->n++] = (struct output){ at_ns, prompt_tok };
}

void front_first(struct front *f, int64_t at_ns, uint32_t prompt_tok)
{
	add(f, at_ns, prompt_tok);
}

void front_last(struct front *f, int64_t at_ns)
{
	add(f, at_ns, -1);
}
