/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers on the cpu backend. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "replay/engine/backend_cpu.h"
#include "tests/alloc_fault.h"
#include "tests/drops-case.h"
#include "tests/revive-case.h"
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
			   decode = { .start = 400, .n_tok = 1, .kind = ROW_DECODE };
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

/* What ranks would send each other: a score for each place of a page, or of blocks of places, and
 * one for each request. */
static void test_messages(void)
{
	static const struct {
		const char *method;
		int block;
		bool before_mlp, revives;
	} at[] = {
		{ "dense+lazyllm:layers=0:0.5", 1, false, false },
		{ "dense+lazyllm:layers=0:0.5,aux-revival=1,revive-max=4", 1, false, true },
		{ "dense+sliminfer:layers=0:0.5,block=32,unit=16,sinks=8,window=8", 32, false,
		  false },
		{ "dense+uniprefill:layers=0,block=64,min-tokens=699,p=0.5,last-q=8,sinks=8", 64,
		  true, false },
	};
	struct batch_entry e[] = { { .n_tok = 400, .known = 400 },
				   { .req = 1, .n_tok = 300, .known = 300 } };
	struct batch_entry decode = { .start = 400, .n_tok = 1, .kind = ROW_DECODE };

	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		const struct case_how how = { .method = at[i].method, .every = true };
		const struct drop_messages *m;
		struct backend_case c;
		struct iter_cost cost;
		struct ar_err err;
		int64_t places;
		int page;

		if (case_open(&c, &backend_cpu, &how, &err))
			bail_out("%s", err.msg);
		page = attn_engine_shape(engine_of(c.self), 0)->page_tok;
		places = (int64_t)((400 + page - 1) / page + (300 + page - 1) / page) * page;
		case_run(&c, e, 2, &cost);
		m = cost.drop_messages;
		ok(cost.n_drop_messages == 1 && m->layer == 0 && m->rows == 700 &&
			   m->kept == cost.drop->n_kept && m->kept < 700 &&
			   m->before_mlp == at[i].before_mlp,
		   "%s: the rows of sums", at[i].method);
		ok(m->score[0] == places / at[i].block + 2 && !m->score[1], "... and %lld scores",
		   (long long)m->score[0]);
		case_run(&c, &decode, 1, &cost);
		ok(m->rows == 1 && m->kept >= 1 && !m->score[0] &&
			   (m->score[1] > 400) == at[i].revives,
		   "... of decodes only where tokens are revived");
		backend_drop(&backend_cpu, c.self, 0);
		backend_drop(&backend_cpu, c.self, 1);
		case_run(&c, &e[1], 1, &cost);
		ok(!m->score[0] == at[i].before_mlp && (m->kept < 300) != at[i].before_mlp,
		   "... and none where a dropper leaves few rows alone");
		case_close(&c);
	}
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
	backend_drop(&backend_cpu, c.self, 0);
	ok(!l->n && !l->pos, "until it has finished");
	case_close(&c);
}

/* ---- tokens that are revived, by hand ---- */

/* The tokens of request 0 in segment s; tokens that are gone stand in brackets. */
static const char *listed(const struct drops *d, int s)
{
	static char text[2][128];
	static int turn;
	const struct drop_list *l = drops_tokens(d, s, 0);
	char *to = text[turn ^= 1];
	size_t at = 0;

	*to = '\0';
	for (int k = 0; k < l->n; k++) {
		bool gone = s < d->n - 1 && l->gone[k];

		at += (size_t)snprintf(to + at, sizeof *text - at, gone ? "%s(%d)" : "%s%d",
				       k ? " " : "", l->pos[k]);
	}
	return to;
}

/* Run an entry of request 0: keep[s]: of its rows in segment s; chosen[s]: indices of the tokens
 * that it revives after segment s, which end with -1. */
static void book(struct drops *d, const struct batch_entry *e, const char *const *keep,
		 const int (*chosen)[3])
{
	struct batch_entry entry = *e;
	const struct batch b = { .entry = &entry, .n = 1 };
	struct ar_err err;

	drops_begin(d, &b);
	for (int s = 0; s < 2; s++) {
		uint8_t flag[8] = { 0 };

		for (int i = 0; e->kind != ROW_DECODE && keep[s][i]; i++)
			flag[i] = keep[s][i] == 'x';
		for (d->chosen.n[0] = 0; e->kind == ROW_DECODE && chosen[s][d->chosen.n[0]] >= 0;
		     d->chosen.n[0]++)
			d->chosen.index[d->chosen.n[0]] = chosen[s][d->chosen.n[0]];
		drops_apply(d, &b, s, flag);
	}
	if (drops_end(d, &err))
		bail_out("%s", err.msg);
}

static void decode(struct drops *d, int pos, const int (*chosen)[3])
{
	book(d, &(struct batch_entry){ .start = (uint32_t)pos, .n_tok = 1, .kind = ROW_DECODE },
	     NULL, chosen);
}

/* Six tokens, of which 0, 3 and 5 go on to segment 1, then 0 and 5 to segment 2. */
static void test_revived(void)
{
	static const int none[2][3] = { { -1 }, { -1 } },
			 two[2][3] = { { 1, 4, -1 }, { 1, 4, -1 } };
	static const int one[2][3] = { { -1 }, { 5, -1 } };
	static const char *const keep[] = { "x..x.x", "x.x" };
	const struct cache_group g = { .shape = { .page_tok = 4 } };
	const struct block_group four = { .page_tok = 4, .n_page = 3 };
	struct blocks tables;
	struct drops d;
	struct ar_err err;
	const int32_t *page;
	int32_t slot[4];

	if (drops_open(&d, 3, 1, 1, 8, 2, &err) || blocks_open(&tables, &four, 1, 1, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
	if (blocks_grow(&tables, 0, 0, 9, &err))
		bail_out("%s", err.msg);
	page = blocks_table(&tables, 0, 0);
	book(&d, &(struct batch_entry){ .n_tok = 6, .known = 6 }, keep, none);
	is_str(listed(&d, 0), "0 (1) (2) 3 (4) 5", "a prompt, and the tokens that are gone");
	is_str(listed(&d, 1), "0 (3) 5", "those of the next segment");
	is_str(listed(&d, 2), "0 5", "and of the last");
	decode(&d, 6, none);
	is_str(listed(&d, 1), "0 (3) 5 6", "a decode that revives none");
	decode(&d, 7, two);
	ok(d.segment[1].start[0] == 4 && d.segment[1].n[0] == 3 && d.segment[1].n_back[0] == 2 &&
		   d.segment[1].back[0][0] == 1 && d.segment[1].back[0][1] == 4,
	   "the next one brings tokens 1 and 4 to segment 1");
	ok(d.segment[2].n_back[0] == 2 && d.segment[2].back[0][0] == 3 &&
		   d.segment[2].back[0][1] == 1,
	   "of which 1 goes on at once, after token 3 of the prompt");
	is_int(drops_slots(&d, &tables, &g, 1, slot), 2,
	       "two come from the aux cache of segment 0");
	ok(slot[0] == page[0] * 4 + 1 && slot[1] == page[1] * 4, "where they are");
	drops_slots(&d, &tables, &g, 2, slot);
	ok(slot[0] == page[0] * 4 + 1 && slot[1] == page[1] * 4,
	   "two from that of segment 1, where they came second and fifth");
	is_str(listed(&d, 0), "0 1 (2) 3 4 5 6 7", "they are gone no more");
	is_str(listed(&d, 1), "0 3 5 6 1 (4) 7",
	       "caches have them in the order in which they came");
	is_str(listed(&d, 2), "0 5 6 3 1 7", "in each segment");
	decode(&d, 8, one);
	is_str(listed(&d, 1), "0 3 5 6 1 4 7 8", "token 4, dropped again, is revived again");
	is_str(listed(&d, 2), "0 5 6 3 1 7 4 8", "and goes to the last segment");
	drops_forget(&d, 0);
	is_str(listed(&d, 0), "", "a request that is preempted has no tokens");
	blocks_release(&tables);
	drops_close(&d);
}

static enum ar_status fault_case(struct ar_err *err)
{
	struct drops d;
	enum ar_status st = drops_open(&d, 3, 4, 5, 6, 2, err);

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
	revive_test_all(&backend_cpu, read_out, engine_of, 0.01);
	test_phases();
	test_messages();
	test_forget();
	test_revived();
	test_faults();
	return done_testing();
}
