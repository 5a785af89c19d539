/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/probe.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/stats.h"

enum {
	OBJECTS = 1 << 14, /* 1 MiB: beyond the first level of caches */
	STEPS = 1 << 17,   /* 10 ms a round */
	ROUNDS = 9,
};

const char *const probe_keys[] = {
#define X(name, key, text) key,
	PROBE_TIMES(X)
#undef X
};

/* An object of a line of cache. */
struct object {
	_Alignas(64) struct object *next;
	uint64_t (*op)(struct object *o, uint64_t x);
	uint64_t value;
	uint32_t count;
};

static uint64_t op_add(struct object *o, uint64_t x)
{
	o->count++;
	return x + o->value;
}

static uint64_t op_mix(struct object *o, uint64_t x)
{
	return rng_mix(x ^ o->value);
}

static uint64_t op_store(struct object *o, uint64_t x)
{
	o->value ^= x & 0xff;
	return x;
}

static uint64_t op_branch(struct object *o, uint64_t x)
{
	return x & o->value & 1 ? x + o->count : x >> 1;
}

/* Link the objects into one ring, in random order (Sattolo's shuffle). */
static void link_ring(struct object *o)
{
	static uint64_t (*const op[])(struct object *, uint64_t) = { op_add, op_mix, op_store,
								     op_branch };
	struct rng r = { 1 };

	for (int i = 0; i < OBJECTS; i++)
		o[i] = (struct object){ &o[i], op[rng_below(&r, 4)], rng_u64(&r), 0 };
	for (int i = OBJECTS - 1; i > 0; i--) {
		struct object *other = &o[rng_below(&r, (uint64_t)i)], *next = o[i].next;

		o[i].next = other->next;
		other->next = next;
	}
}

/* Time of this thread on a processor: on a loaded host the loop waits for one, and an engine, which
 * sleeps between its steps, hardly does. */
static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum ar_status probe_loop(struct probe *p, struct ar_err *err)
{
	struct object *ring = aligned_alloc(64, OBJECTS * sizeof *ring), *at = ring;
	volatile uint64_t kept;
	double ns[ROUNDS];
	uint64_t x = 0;

	if (!ring)
		return ar_nomem(err);
	link_ring(ring);
	for (int i = 0; i < ROUNDS; i++) {
		const double since = processor_ns();

		for (int k = 0; k < STEPS; k++) {
			x = at->op(at, x);
			at = at->next;
		}
		ns[i] = (processor_ns() - since) * 1000 / STEPS;
	}
	kept = x; /* so that the walk is not left out */
	(void)kept;
	free(ring);
	stats_sort(ns, ROUNDS);
	p->ns[PROBE_LOOP] = stats_percentile(ns, ROUNDS, 50);
	return AR_OK;
}

cJSON *probe_json(const struct probe *p)
{
	cJSON *o = cJSON_CreateObject();

	for (int i = 0; i < PROBE_N_TIMES; i++)
		if (p->ns[i] > 0 && !json_add_real(o, probe_keys[i], p->ns[i])) {
			cJSON_Delete(o);
			return NULL;
		}
	return o;
}

bool probe_read(struct probe *p, const cJSON *o)
{
	*p = (struct probe){ 0 };
	for (int i = 0; i < PROBE_N_TIMES; i++) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, probe_keys[i]);

		if (v && (!cJSON_IsNumber(v) || !(v->valuedouble > 0 && v->valuedouble < 1e12)))
			return false;
		p->ns[i] = v ? v->valuedouble : 0;
	}
	return cJSON_IsObject(o);
}

double probe_ratio(const struct probe *a, const struct probe *b)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < PROBE_N_TIMES; i++)
		if (a->ns[i] > 0 && b->ns[i] > 0) {
			sum += log(b->ns[i] / a->ns[i]);
			n++;
		}
	return n ? exp(sum / n) : 0;
}
