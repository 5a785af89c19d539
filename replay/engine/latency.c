/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/latency.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

const char *const latency_names[] = {
	[LATENCY_TTFT] = "TTFT", [LATENCY_TPOT] = "TPOT",   [LATENCY_ITL] = "ITL",
	[LATENCY_E2E] = "E2E",	 [LATENCY_QUEUE] = "queue",
};

/* Runs that are not in order, at most: to sort them takes as much memory again. */
enum { TAIL_MOST = 1 << 18 };

/* A number in whose order runs are. */
static uint64_t key_of(const struct series_run *r)
{
	uint64_t bits;

	memcpy(&bits, &r->x, sizeof bits);
	return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* Count the bytes at `shift` of the keys.  Return whether they differ. */
static bool count_bytes(const struct series_run *v, size_t n, int shift, size_t first[256])
{
	size_t at = 0;

	memset(first, 0, 256 * sizeof *first);
	for (size_t i = 0; i < n; i++)
		first[key_of(&v[i]) >> shift & 0xff]++;
	if (first[key_of(v) >> shift & 0xff] == n)
		return false;
	for (int k = 0; k < 256; k++) {
		size_t many = first[k];

		first[k] = at;
		at += many;
	}
	return true;
}

/* Sort n runs, byte by byte.  other: room for as many.  Returns where they are: v or other. */
static struct series_run *sort_runs(struct series_run *v, struct series_run *other, size_t n)
{
	size_t first[256];

	for (int shift = 0; shift < 64; shift += 8) {
		struct series_run *from = v;

		if (!count_bytes(v, n, shift, first))
			continue;
		for (size_t i = 0; i < n; i++)
			other[first[key_of(&from[i]) >> shift & 0xff]++] = from[i];
		v = other;
		other = from;
	}
	return v;
}

/* Join equal runs of s, which is in order. */
static void join(struct series *s)
{
	size_t n = 0;

	for (size_t i = 1; i < s->n_run; i++) {
		if (s->run[i].x > s->run[n].x)
			s->run[++n] = s->run[i];
		else
			s->run[n].n += s->run[i].n;
	}
	s->n_run = s->n_sorted = n + 1;
}

/* The tail is merged from the end, so that only it needs memory. */
enum ar_status series_sort(struct series *s, struct ar_err *err)
{
	size_t sorted = s->n_sorted, n = s->n_run, n_tail = n - sorted;
	struct series_run *tail;

	if (!n_tail)
		return AR_OK;
	tail = malloc(n_tail * sizeof *tail);
	if (!tail)
		return ar_nomem(err);
	if (sort_runs(s->run + sorted, tail, n_tail) != tail)
		memcpy(tail, s->run + sorted, n_tail * sizeof *tail);
	while (n_tail) {
		bool last = sorted && s->run[sorted - 1].x > tail[n_tail - 1].x;

		s->run[--n] = last ? s->run[--sorted] : tail[--n_tail];
	}
	free(tail);
	join(s);
	return AR_OK;
}

/* Join equal runs.  If more than half of the memory is still used, double it. */
static enum ar_status make_room(struct series *s, struct ar_err *err)
{
	enum ar_status st = series_sort(s, err);

	if (st || (s->cap && s->n_run <= s->cap / 2))
		return st;
	return GROW(s->run, s->cap, s->cap ? 2 * s->cap : 256) ? AR_OK : ar_nomem(err);
}

enum ar_status series_reserve(struct series *s, size_t n, struct ar_err *err)
{
	return GROW(s->run, s->cap, n) ? AR_OK : ar_nomem(err);
}

enum ar_status series_add(struct series *s, double x, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	s->n++;
	if (s->n_run && s->run[s->n_run - 1].x == x) {
		s->run[s->n_run - 1].n++;
		return AR_OK;
	}
	if (s->n_run == s->cap)
		st = make_room(s, err);
	else if (s->n_run - s->n_sorted >= TAIL_MOST)
		st = series_sort(s, err);
	if (!st)
		s->run[s->n_run++] = (struct series_run){ x, 1 };
	return st;
}

void series_release(struct series *s)
{
	free(s->run);
	*s = (struct series){ 0 };
}

static double series_at(const struct series *s, uint64_t k)
{
	size_t i = 0;

	while (i + 1 < s->n_run && k >= s->run[i].n)
		k -= s->run[i++].n;
	return s->run[i].x;
}

double series_percentile(const struct series *s, double p)
{
	double h = (double)(s->n - 1) * p / 100;
	uint64_t k = (uint64_t)h;
	double lo = series_at(s, k);

	return lo + (h - (double)k) * (series_at(s, k + 1) - lo);
}

double series_mean(const struct series *s)
{
	double sum = 0;

	for (size_t i = 0; i < s->n_run; i++)
		sum += s->run[i].x * (double)s->run[i].n;
	return sum / (double)s->n;
}
