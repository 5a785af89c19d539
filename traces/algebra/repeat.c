/* SPDX-License-Identifier: Apache-2.0 */
/* Repeating a trace: each copy gets its own sessions, and its own blocks if prefixes are not
 * shared. */
#include "config.h"
#include "traces/algebra/repeat.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/grow.h"
#include "traces/algebra/renumber.h"
#include "traces/intern.h"

static const double CLOCK_END_NS = 9.2e18, YEAR_NS = 365.25 * 86400e9;

double trace_period_ns(const struct trace *t)
{
	double span = (double)(t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns);

	return t->n > 1 ? span * ((double)t->n / (double)(t->n - 1)) : 0;
}

static enum ar_status settle_period(const struct trace *t, int64_t n, int64_t *period_ns,
				    struct ar_err *err)
{
	int64_t span = t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns;

	if (!*period_ns && !span)
		return ar_fail(err, AR_USAGE,
			       "--repeat: all requests arrive together; set "
			       "--repeat-period");
	if ((double)span >= CLOCK_END_NS / 2)
		return ar_fail(err, AR_USAGE,
			       "--repeat: the trace takes %.0f years, more than half of the %.0f "
			       "of the clock",
			       (double)span / YEAR_NS, CLOCK_END_NS / YEAR_NS);
	if (!*period_ns)
		*period_ns = (int64_t)trace_period_ns(t);
	if (*period_ns < span)
		return ar_fail(err, AR_USAGE,
			       "--repeat-period is shorter than the trace, which takes %.9f s",
			       (double)span * 1e-9);
	return trace_check_end(
		t, (double)t->req[t->n - 1].arrival_ns + (double)*period_ns * (double)(n - 1), err);
}

/* The links of n copies.  False: no memory. */
static bool repeat_links(struct trace *t, int64_t n)
{
	const size_t one = t->n_session;
	size_t cap = one;

	if (!t->link)
		return true;
	if (!GROW(t->link, cap, (size_t)n * one))
		return false;
	for (size_t s = one; s < (size_t)n * one; s++) {
		t->link[s] = t->link[s - one];
		if (t->link[s].parent >= 0)
			t->link[s].parent += (int32_t)one;
	}
	return true;
}

/* Names for the sessions of n copies: session s of copy c becomes c * n_session + s. */
static bool repeat_names(struct trace *t, int64_t n)
{
	struct intern_table all = { 0 };
	bool done = true;

	for (int64_t c = 0; c < n && t->n_session && done; c++)
		for (size_t s = 0; s < t->n_session && done; s++)
			done = intern_put_new(&all, t->session[s], (unsigned)c + 1);
	if (done && t->n_session)
		intern_take(&t->session, &t->n_session, &all);
	intern_release(&all);
	return done;
}

/* Fill in the copies of the requests, the last copy first.  t->req has room for n copies. */
static void repeat_requests(struct trace *t, int64_t n, int64_t period_ns, size_t n_session,
			    size_t n_run)
{
	for (int64_t c = n - 1; c > 0; c--)
		for (size_t i = 0; i < t->n; i++) {
			struct request *q = &t->req[(size_t)c * t->n + i];

			*q = t->req[i];
			q->arrival_ns += c * period_ns;
			q->run += (size_t)c * n_run;
			if (q->session >= 0)
				q->session += (int32_t)((size_t)c * n_session);
		}
	t->n *= (size_t)n;
}

/* Repeat t->run n times, with different ids in each copy. */
static enum ar_status repeat_blocks(struct trace *t, int64_t n, struct ar_err *err)
{
	uint64_t n_ids;
	enum ar_status st = trace_number_blocks(t, &n_ids, err);
	size_t one = t->n_run, all = (size_t)n * one;

	if (st)
		return st;
	if (!GROW(t->run, t->cap_run, all))
		return ar_nomem(err);
	for (size_t k = one; k < all; k++)
		t->run[k] = (struct block_run){ t->run[k - one].id + n_ids, t->run[k - one].at };
	t->n_run = all;
	return AR_OK;
}

enum ar_status trace_repeat(struct trace *t, int64_t n, int64_t period_ns, bool share,
			    struct ar_err *err)
{
	size_t n_session = t->n_session, cap = t->n, n_run;
	enum ar_status st = settle_period(t, n, &period_ns, err);

	if (st)
		return st;
	if ((uint64_t)n > INT32_MAX / (n_session + 1) || (uint64_t)n > UINT32_MAX / t->n)
		return ar_fail(err, AR_USAGE, "--repeat %" PRId64 " makes too many requests", n);
	if (!GROW(t->req, cap, (size_t)n * t->n))
		return ar_nomem(err);
	if (!share)
		st = repeat_blocks(t, n, err);
	if (!st && (!repeat_links(t, n) || !repeat_names(t, n)))
		st = ar_nomem(err);
	if (st)
		return st;
	n_run = share ? 0 : t->n_run / (size_t)n;
	repeat_requests(t, n, period_ns, n_session, n_run);
	return AR_OK;
}
