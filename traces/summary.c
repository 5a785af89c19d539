#include "config.h"
#include "traces/summary.h"

#include <math.h>
#include <stdlib.h>

#include "traces/intern.h"

const int summary_window_s[SUMMARY_WINDOWS] = { 1, 10, 60 };

static int64_t span(const struct trace *t)
{
	return t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns;
}

static double gap_cv(const struct trace *t)
{
	double n = (double)t->n - 1, mean = (double)span(t) / n, ss = 0;

	for (size_t i = 1; i < t->n; i++) {
		double d = (double)(t->req[i].arrival_ns - t->req[i - 1].arrival_ns) - mean;

		ss += d * d;
	}
	return mean > 0 ? sqrt(ss / n) / mean : NAN;
}

/* Over whole windows of w_ns from the first arrival.  Empty windows add nothing to the
 * sums, so that only those with requests are visited. */
static double dispersion(const struct trace *t, int64_t w_ns)
{
	int64_t windows = span(t) / w_ns, t0 = t->req[0].arrival_ns;
	double sum = 0, squares = 0, mean;
	size_t i = 0;

	while (i < t->n && (t->req[i].arrival_ns - t0) / w_ns < windows) {
		int64_t w = (t->req[i].arrival_ns - t0) / w_ns;
		double count = 0;

		for (; i < t->n && (t->req[i].arrival_ns - t0) / w_ns == w; i++)
			count++;
		sum += count;
		squares += count * count;
	}
	if (!windows)
		return NAN;
	mean = sum / (double)windows;
	return (squares / (double)windows - mean * mean) / mean;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static struct spread spread(uint32_t *v, size_t n)
{
	struct spread s = { 0 };

	for (size_t i = 0; i < n; i++)
		s.sum += v[i];
	qsort(v, n, sizeof *v, by_value);
	s.min = v[0];
	s.p50 = v[(n * 50 + 99) / 100 - 1];
	s.p90 = v[(n * 90 + 99) / 100 - 1];
	s.p99 = v[(n * 99 + 99) / 100 - 1];
	s.max = v[n - 1];
	return s;
}

/* Ids are chained, so that a block was seen with its whole prefix or not at all. */
static bool reuse(const struct trace *t, struct summary *s)
{
	struct chain seen = { 0 };
	bool done = true;

	for (size_t i = 0; i < t->n && done; i++) {
		const struct request *q = &t->req[i];
		uint64_t run = 0, first_of, tok;

		for (uint32_t k = 0; k < q->n_block && done; k++) {
			struct chain_key key = { .src = t->block[q->block + k] };

			done = chain_put(&seen, key, i, &first_of);
			run += done && run == k && first_of != i;
		}
		tok = run * t->block_tok;
		s->blocks_reused += run;
		s->tok_reused += tok < q->prompt_tok ? tok : q->prompt_tok;
	}
	chain_release(&seen);
	return done;
}

enum ar_status trace_summarize(struct summary *out, const struct trace *t, struct ar_err *err)
{
	struct summary s = { .rate = NAN, .gap_cv = NAN, .distinct = 1 };
	uint32_t *v = malloc(t->n * sizeof *v);

	if (!v)
		return ar_nomem(err);
	for (size_t i = 1; i < t->n; i++)
		s.distinct += t->req[i].arrival_ns != t->req[i - 1].arrival_ns;
	if (s.distinct > 1) {
		s.rate = (double)t->n / ((double)span(t) * 1e-9);
		s.gap_cv = gap_cv(t);
	}
	for (int i = 0; i < SUMMARY_WINDOWS; i++)
		s.dispersion[i] = dispersion(t, (int64_t)summary_window_s[i] * 1000000000);
	for (size_t i = 0; i < t->n; i++)
		v[i] = t->req[i].prompt_tok;
	s.prompt = spread(v, t->n);
	for (size_t i = 0; i < t->n; i++)
		v[i] = t->req[i].output_tok;
	s.output = spread(v, t->n);
	free(v);
	if (!reuse(t, &s))
		return ar_nomem(err);
	*out = s;
	return AR_OK;
}
