/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's counter moves in steps, which may be longer than an iteration.  So each reading waits for
 * a step: then counter and clock belong together.  The idle power comes from the same counter.
 * While another process opens the GPU, a call may take so long that nobody knows when the counter
 * moved.  Then the reading waits for the next step.
 */
#include "config.h"
#include "profiler/nvml/energy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <time.h>

#include "profiler/nvml/nvml.h"

enum {
	POLL_NS = 1000000,
	SHARP_NS = 15000000,   /* most time of two calls, which take 4 ms each on an H200 */
	STILL_NS = 1000000000, /* a counter that stands still for so long is none */
};

/* The counter's value at some time of a call. */
struct reading {
	int64_t mj, from_ns, at_ns;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum ar_status get_energy(const struct energy_meter *m, struct reading *r,
				 struct ar_err *err)
{
	const int64_t from_ns = now_ns();
	unsigned long long mj = 0;
	enum ar_status st = nvml_check(nvml.energy(m->gpu, &mj), "read the GPU's energy counter",
				       err);

	*r = (struct reading){ (int64_t)mj, from_ns, now_ns() };
	return st;
}

static void pause_until(int64_t ns)
{
	const struct timespec t = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* Whether the counter moved between two calls that did not take long. */
static bool is_step(const struct reading *last, const struct reading *r)
{
	return r->mj != last->mj && r->at_ns - last->from_ns <= SHARP_NS;
}

/* Read the counter when it moves.  After STILL_NS any move will do. */
static enum ar_status get_step(const struct energy_meter *m, struct reading *r, struct ar_err *err)
{
	struct reading first, last;
	enum ar_status st = get_energy(m, &first, err);

	for (*r = last = first; !st && !is_step(&last, r); st = get_energy(m, r, err)) {
		if (r->at_ns - first.at_ns > STILL_NS)
			break;
		last = *r;
		pause_until(r->at_ns + POLL_NS);
	}
	return st || r->mj != first.mj ?
		       st :
		       ar_fail(err, AR_NODEV, "the GPU's energy counter stands still");
}

/* The energy between two readings. */
static enum ar_status used(const struct reading *from, const struct reading *to, int64_t *mj,
			   struct ar_err *err)
{
	*mj = to->mj - from->mj;
	return *mj < 0 ? ar_fail(err, AR_NODEV,
				 "the GPU's energy counter went back from %" PRId64 " to %" PRId64
				 " mJ",
				 from->mj, to->mj) :
			 AR_OK;
}

enum ar_status energy_open(struct energy_meter *m, const char *uuid, struct ar_err *err)
{
	*m = (struct energy_meter){ 0 };
	return nvml_open(&m->gpu, uuid, err);
}

void energy_close(struct energy_meter *m)
{
	if (m->gpu)
		nvml_close();
	m->gpu = NULL;
}

/* Measure the idle power for at least idle_ns, and set *r to the step of the counter at its end.
 * Call it right after a step.  The next step may still count energy of the work before: up to a
 * tenth more on an H200.  So measuring begins at that next step. */
static enum ar_status measure_idle(struct energy_meter *m, int64_t idle_ns, struct reading *r,
				   struct ar_err *err)
{
	struct reading from;
	int64_t mj = 0;
	enum ar_status st = get_step(m, r, err);

	from = *r;
	if (st)
		return st;
	pause_until(from.at_ns + idle_ns);
	st = get_step(m, r, err);
	if (!st)
		st = used(&from, r, &mj, err);
	if (!st)
		m->idle_mw = (int64_t)((double)mj * 1e9 / (double)(r->at_ns - from.at_ns));
	return st;
}

enum ar_status energy_begin(struct energy_meter *m, int64_t idle_ns, struct ar_err *err)
{
	struct reading now;
	enum ar_status st = get_step(m, &now, err);

	if (!st && idle_ns)
		st = measure_idle(m, idle_ns, &now, err);
	m->mj = now.mj;
	m->at_ns = now.at_ns;
	return st;
}

enum ar_status energy_end(const struct energy_meter *m, struct energy_use *use, struct ar_err *err)
{
	const struct reading from = { .mj = m->mj, .at_ns = m->at_ns };
	struct reading now;
	int64_t mj = 0;
	enum ar_status st = get_step(m, &now, err);

	if (!st)
		st = used(&from, &now, &mj, err);
	if (!st)
		*use = (struct energy_use){ now.at_ns - from.at_ns, mj, m->idle_mw };
	return st;
}
