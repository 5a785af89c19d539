/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/algebra/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "traces/algebra/id_ranges.h"

const int summary_window_s[SUMMARY_WINDOWS] = { 1, 10, 60 };

static int64_t trace_span(const struct trace *t)
{
	return t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns;
}

static double gap_cv(const struct trace *t)
{
	double n = (double)t->n - 1, mean = (double)trace_span(t) / n, ss = 0;

	for (size_t i = 1; i < t->n; i++) {
		double d = (double)(t->req[i].arrival_ns - t->req[i - 1].arrival_ns) - mean;

		ss += d * d;
	}
	return mean > 0 ? sqrt(ss / n) / mean : NAN;
}

/* Only windows with requests are visited: empty windows add nothing to the sums. */
static struct window_counts count_windows(const struct trace *t, int64_t w_ns)
{
	struct window_counts c = {
		.dispersion = NAN, .idle = NAN, .windows = trace_span(t) / w_ns, .min = UINT64_MAX
	};
	int64_t t0 = t->req[0].arrival_ns, busy = 0;
	double sum = 0, squares = 0, n = (double)c.windows;
	size_t i = 0;

	while (i < t->n && (t->req[i].arrival_ns - t0) / w_ns < c.windows) {
		int64_t w = (t->req[i].arrival_ns - t0) / w_ns;
		size_t first = i;
		double count;

		while (i < t->n && (t->req[i].arrival_ns - t0) / w_ns == w)
			i++;
		count = (double)(i - first);
		c.min = i - first < c.min ? i - first : c.min;
		c.max = i - first > c.max ? i - first : c.max;
		sum += count;
		squares += count * count;
		busy++;
	}
	if (busy < c.windows)
		c.min = 0;
	if (c.windows) {
		c.dispersion = (squares / n - sum / n * (sum / n)) / (sum / n);
		c.idle = 1 - (double)busy / n;
	}
	return c;
}

static struct spread spread_of(uint64_t *v, size_t n)
{
	struct spread s = { .n = n };

	if (!n)
		return s;
	for (size_t i = 0; i < n; i++)
		s.sum += v[i];
	qsort(v, n, sizeof *v, order_u64);
	s.min = v[0];
	s.p50 = v[(n * 50 + 99) / 100 - 1];
	s.p90 = v[(n * 90 + 99) / 100 - 1];
	s.p99 = v[(n * 99 + 99) / 100 - 1];
	s.max = v[n - 1];
	return s;
}

static double correlation(const struct trace *t)
{
	double n = (double)t->n, x1 = 0, y1 = 0, xx = 0, yy = 0, xy = 0;

	for (size_t i = 0; i < t->n; i++) {
		x1 += t->req[i].prompt_tok / n;
		y1 += t->req[i].output_tok / n;
	}
	for (size_t i = 0; i < t->n; i++) {
		double x = t->req[i].prompt_tok - x1, y = t->req[i].output_tok - y1;

		xx += x * x;
		yy += y * y;
		xy += x * y;
	}
	return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

/* Count reused blocks.  Ids are chained, so an id that was seen before implies its whole prefix.
 * used[] counts the uses of each range of ids; tok[] gets the reused tokens of each request. */
static void count_reuse(const struct trace *t, struct summary *s, const struct id_ranges *r,
			uint32_t *used, uint64_t *tok)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];
		struct id_walk w = { .t = t, .r = r, .q = q };
		uint64_t run = 0;

		while (id_walk_next(&w)) {
			run += run == w.at && used[w.range] ? w.n : 0;
			s->distinct_blocks += used[w.range] ? 0 : w.n;
			s->blocks_once += used[w.range] ? 0 : w.n;
			s->blocks_once -= used[w.range] == 1 ? w.n : 0;
			used[w.range]++;
		}
		tok[i] = run * t->block_tok;
		tok[i] = tok[i] < q->prompt_tok ? tok[i] : q->prompt_tok;
		s->blocks_reused += run;
		s->prompts_reused += run && run == q->n_block;
		s->tok_reused += tok[i];
	}
}

static enum ar_status reuse(const struct trace *t, struct summary *s, uint64_t *tok,
			    struct ar_err *err)
{
	struct id_ranges r;
	enum ar_status st = id_ranges_find(&r, t, err);
	uint32_t *used = st ? NULL : calloc(r.n + 1, sizeof *used);

	if (used)
		count_reuse(t, s, &r, used, tok);
	id_ranges_release(&r);
	free(used);
	return used || st ? st : ar_nomem(err);
}

enum ar_status trace_reuse(const struct trace *t, uint64_t *tok, struct ar_err *err)
{
	return reuse(t, &(struct summary){ 0 }, tok, err);
}

/* tok: reused tokens of each request; written to. */
static void spread_later(struct summary *s, const struct trace *t, uint64_t *tok)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].session >= 0 && t->req[i].turn && t->req[i].n_block)
			tok[n++] = t->req[i].prompt_tok - tok[i];
	s->later = spread_of(tok, n);
}

/* v: scratch with room for one value per request, and per session. */
static void spreads(struct summary *s, const struct trace *t, uint64_t *v)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		v[i] = t->req[i].prompt_tok;
	s->prompt = spread_of(v, t->n);
	for (size_t i = 0; i < t->n; i++)
		v[i] = t->req[i].output_tok;
	s->output = spread_of(v, t->n);
	for (size_t i = 1; i < t->n; i++)
		v[i - 1] = (uint64_t)(t->req[i].arrival_ns - t->req[i - 1].arrival_ns);
	s->gap_ns = spread_of(v, t->n - 1);
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].n_block)
			v[n++] = t->req[i].n_block;
	s->block = spread_of(v, n);
	memset(v, 0, t->n_session * sizeof *v);
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].session >= 0)
			v[t->req[i].session]++;
	n = 0;
	for (size_t i = 0; i < t->n_session; i++)
		if (v[i])
			v[n++] = v[i];
	s->session = spread_of(v, n);
	n = 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].session >= 0 && t->req[i].think_ns >= 0)
			v[n++] = (uint64_t)t->req[i].think_ns;
	s->think_ns = spread_of(v, n);
}

/* Count the sessions that others start.  seen: room for one value per session. */
static void count_started(struct summary *s, const struct trace *t, uint64_t *seen)
{
	memset(seen, 0, t->n_session * sizeof *seen);
	for (size_t i = 0; i < t->n && t->link; i++) {
		int32_t k = t->req[i].session;

		if (k < 0 || t->link[k].parent < 0)
			continue;
		s->started_requests++;
		s->started += !seen[k]++;
	}
}

enum ar_status trace_summarize(struct summary *out, const struct trace *t, struct ar_err *err)
{
	struct summary s = { .rate = NAN, .gap_cv = NAN, .distinct = 1 };
	uint64_t *v = calloc(t->n > t->n_session ? t->n : t->n_session, sizeof *v);
	enum ar_status st;

	for (size_t i = 0; i < t->n; i++) {
		uint64_t total = (uint64_t)t->req[i].prompt_tok + t->req[i].output_tok;

		s.longest = total > s.longest ? total : s.longest;
		s.distinct += i && t->req[i].arrival_ns != t->req[i - 1].arrival_ns;
	}
	st = v ? reuse(t, &s, v, err) : ar_nomem(err);
	if (!st) {
		spread_later(&s, t, v);
		spreads(&s, t, v);
		count_started(&s, t, v);
	}
	free(v);
	if (st)
		return st;
	if (s.distinct > 1) {
		s.rate = (double)t->n / ((double)trace_span(t) * 1e-9);
		s.gap_cv = gap_cv(t);
	}
	for (int i = 0; i < SUMMARY_WINDOWS; i++)
		s.window[i] = count_windows(t, (int64_t)summary_window_s[i] * 1000000000);
	s.correlation = correlation(t);
	*out = s;
	return AR_OK;
}
