/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers on the cpu backend. */
#include "config.h"

#include <string.h>

#include "replay/engine/backend_cpu.h"
#include "tests/alloc_fault.h"
#include "tests/drops-case.h"
#include "tests/tap.h"

static void read_out(void *self, size_t at, size_t n, bf16_t *out)
{
	const struct cpu *c = self;

	memcpy(out, c->out + at, n * sizeof *out);
}

static const struct attn_engine *engine_of(const void *self)
{
	return &((const struct cpu *)self)->engine;
}

/* Half of a prompt's tokens go on after layer 0. */
static void open_lazy(struct backend_case *c)
{
	const struct case_how how = { .method = "dense+lazyllm:layers=0:0.5", .mixed = true };
	struct ar_err err;

	if (case_open(c, &backend_cpu, &how, &err))
		bail_out("%s", err.msg);
}

/* The drop phase has the time of the droppers, and decodes have none. */
static void test_phases(void)
{
	struct batch_entry e = { .n_tok = 400, .known = 400 },
			   decode = { .start = 400, .n_tok = 1, .decode = true };
	struct iter_cost cost;
	struct backend_case c;

	open_lazy(&c);
	case_run(&c, &e, 1, &cost);
	ok(cost.phase_ns[PHASE_DROP] > 0 && cost.phase_ns[PHASE_ATTEND] > 0,
	   "droppers have a time of their own");
	ok(cost.n_drop == 1 && cost.drop->layer == 0 && cost.drop->n_row == 400 &&
		   cost.drop->n_kept == 200,
	   "and counts");
	case_run(&c, &decode, 1, &cost);
	ok(!cost.phase_ns[PHASE_DROP] && !cost.n_drop, "which decodes do not have");
	case_close(&c);
}

/* A request that has finished takes no memory. */
static void test_forget(void)
{
	struct batch_entry e = { .n_tok = 400, .known = 400 };
	const struct drop_list *l;
	struct iter_cost cost;
	struct backend_case c;

	open_lazy(&c);
	case_run(&c, &e, 1, &cost);
	l = drops_tokens(&engine_of(c.self)->drops, 1, 0);
	is_int(l->n, 200, "the tokens that a request keeps are listed");
	backend_cpu.drop(c.self, 0);
	ok(!l->n && !l->pos, "until it has finished");
	case_close(&c);
}

static enum ar_status fault_case(struct ar_err *err)
{
	struct drops d;
	enum ar_status st = drops_open(&d, 3, 4, 5, 6, err);

	drops_close(&d);
	return st;
}

static void test_faults(void)
{
	bool hit = true;
	int bad = 0, k = 0;

	for (; hit && k < 40; k++) {
		struct ar_err err;
		enum ar_status st;

		fault_arm(k);
		st = fault_case(&err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && !hit && k > 10, "every allocation that fails is reported");
}

int main(void)
{
	plan(0);
	drops_test_all(&backend_cpu, read_out, engine_of, 0.01);
	test_phases();
	test_forget();
	test_faults();
	return done_testing();
}
