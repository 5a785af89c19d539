/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys evictors keep, and where they move to: worked examples, and rules on random keys. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/evict/evictor.h"
#include "kernels/evict/h2o/h2o.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

/* ---- events ---- */

static struct evict *parsed(const char *text)
{
	struct ar_err err;
	struct evict *e;

	if (evict_parse(&e, text, &err))
		bail_out("%s", err.msg);
	return e;
}

/* An event of the only sequence of c, all of whose n tokens are stored. */
struct event {
	struct evict_req req;
	struct evict_call call;
};

static struct event *event_of(const struct batch_case *c, const struct evict *e, int n, void *state)
{
	struct event *x = calloc(1, sizeof *x);
	bool whole;
	int w = evict_window(e, &whole);

	if (!x)
		bail_out("no memory");
	w = w < n ? w : n;
	x->req = (struct evict_req){
		.n_key = n, .n_cand = n, .n_keep = (int)evict_kept(e, n), .row0 = n - w, .n_row = w
	};
	x->call = (struct evict_call){ .shape = c->b.shape,
				       .n_req = 1,
				       .req = &x->req,
				       .page = c->page,
				       .kv = c->kv,
				       .state = state,
				       .q = c->all_q };
	x->call.keep = calloc((size_t)(x->req.n_keep * c->b.shape.kv_heads), sizeof(int32_t));
	if (!x->call.keep)
		bail_out("no memory");
	return x;
}

static void event_free(struct event *x)
{
	free(x->call.keep);
	free(x);
}

/* The kept tokens of each KV head, as "0-2 5 | 1 3-6"; name, if not NULL, gives a slot's token. */
static const char *kept_text(const struct event *x, const int32_t *name)
{
	static char text[512];
	size_t n = 0;

	*text = 0;
	for (int h = 0; h < x->call.shape.kv_heads; h++) {
		const int32_t *keep = x->call.keep + h * x->req.n_keep;

		if (h)
			n += (size_t)snprintf(text + n, sizeof text - n, " | ");
		for (int i = 0, from = 0; i < x->req.n_keep; i++) {
			int t = name ? name[h * 64 + keep[i]] : keep[i];
			int next = i + 1 == x->req.n_keep ? -1 :
				   name			  ? name[h * 64 + keep[i + 1]] :
							    keep[i + 1];

			if (next == t + 1)
				continue;
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", from ? " " : "",
					      name ? name[h * 64 + keep[from]] : keep[from]);
			if (from < i)
				n += (size_t)snprintf(text + n, sizeof text - n, "-%d", t);
			from = i + 1;
		}
	}
	return text;
}

/* Which of the first n tokens of the example evictor `text` keeps. */
static const char *kept_of(const char *text, int n)
{
	struct evict *e = parsed(text);
	struct batch_case c;
	struct ar_err err;
	struct event *x;
	const char *kept;

	case_decode_keys(&c, n);
	x = event_of(&c, e, n, NULL);
	if (evict_ref(e, &x->call, &err))
		bail_out("%s", err.msg);
	kept = kept_text(x, NULL);
	event_free(x);
	case_release(&c);
	evict_free(e);
	return kept;
}

/* ---- worked examples ---- */

#define SMALL "snapkv:budget=12,window=4,kernel=3,variant="

static void test_snapkv(void)
{
	is_str(kept_of(SMALL "kvpress", 40), "0-2 5-6 31-33 36-39 | 2-7 31-32 36-39", "kvpress");
	is_str(kept_of(SMALL "snapkv", 40), "0-2 5-6 31-33 36-39 | 2-7 31-32 36-39",
	       "sums and means over rows and heads keep the same");
	is_str(kept_of(SMALL "trtllm", 40), "0 4-7 31-33 36-39 | 2-3 5-7 31-33 36-39",
	       "TensorRT-LLM");
	is_str(kept_of(SMALL "trtllm,softmax=all", 40), "0 4-7 31-33 36-39 | 2-7 31-32 36-39",
	       "its reference path");
	is_str(kept_of(SMALL "frontier,sink=2,local=3", 40),
	       "0-2 5-6 19 31-33 37-39 | 0-1 3-7 35-39", "sparse-frontier");
}

static void test_streaming(void)
{
	is_str(kept_of("streaming:sink=4,recent=12", 39), "0-3 27-38 | 0-3 27-38", "streaming");
	is_str(kept_of("streaming:sink=0,recent=3", 39), "36-38 | 36-38", "... without sinks");
}

/* State of the pages of c after the first n tokens, as one prompt in chunks. */
static void *h2o_prompt(struct batch_case *c, const struct evict *e, int n, int chunk)
{
	void *state = calloc((size_t)c->n_page, evict_state_bytes(e, &c->b.shape));
	struct ar_err err;

	for (int at = 0; at < n; at += chunk) {
		struct attn_call call = { .b = &c->b, .kv = c->kv, .state = state };

		case_cut(c, (int[]){ at }, (int[]){ chunk });
		call.q = c->q;
		if (evict_add_ref(e, &call, &err))
			bail_out("%s", err.msg);
	}
	return state;
}

static void test_h2o_scores(int chunk)
{
	static const float want[2][12] = {
		{ 5.7884f, 3.5713f, 2.6547f, 4.1136f, 2.0242f, 1.8853f, 1.7230f, .4396f, .5202f,
		  1.0254f, .2264f, .0279f },
		{ 5.6572f, 3.6250f, 2.1767f, 3.2018f, 1.6944f, 1.5011f, 2.0136f, .4637f, 2.4093f,
		  .9410f, .3131f, .0032f },
	};
	struct evict *e = parsed("h2o");
	struct batch_case c;
	const struct h2o_state *state;
	float got[12];

	case_decode_keys(&c, 12);
	state = h2o_prompt(&c, e, 12, chunk);
	for (int h = 0; h < 2; h++) {
		for (int t = 0; t < 12; t++)
			got[t] = state[(c.page[t / 8] * 2 + h) * 8 + t % 8].sum;
		is_f32(got, want[h], 12, 6e-5, 0, "h2o: scores of KV head %d, chunks of %d", h,
		       chunk);
	}
	free((void *)(uintptr_t)state);
	case_release(&c);
	evict_free(e);
}

/* Store token t of `from` in slot 7 of c, and run its row there. */
static void h2o_decode(struct batch_case *c, const struct batch_case *from, const struct evict *e,
		       int t, void *state)
{
	struct attn_call call = { .b = &c->b, .kv = c->kv, .state = state };
	struct ar_err err;

	for (int h = 0; h < 2; h++)
		memcpy(c->kv.k + (size_t)((c->page[0] * 2 + h) * 8 + 7) * 4,
		       from->kv.k + (size_t)((from->page[t / 8] * 2 + h) * 8 + t % 8) * 4,
		       4 * sizeof *c->kv.k);
	case_cut(c, (int[]){ 7 }, (int[]){ 1 });
	call.q = from->all_q + (ptrdiff_t)t * 16;
	if (evict_add_ref(e, &call, &err))
		bail_out("%s", err.msg);
}

/* An event of n tokens in slots, of which name knows the tokens; the next one is `next`. */
static const char *h2o_event(const struct batch_case *c, const struct evict *e, int n, void *state,
			     int32_t *name, int next)
{
	struct event *x = event_of(c, e, n, state);
	const char *text;
	struct ar_err err;

	if (evict_ref(e, &x->call, &err))
		bail_out("%s", err.msg);
	text = kept_text(x, name);
	for (int h = 0; h < 2; h++) {
		for (int i = 0; i < 7; i++)
			name[h * 64 + i] = name[h * 64 + x->call.keep[h * 7 + i]];
		name[h * 64 + 7] = next;
	}
	event_free(x);
	return text;
}

/* A prompt of 12 tokens and four decodes.  Seven tokens stay. */
static void test_h2o(void)
{
	static const char *const want[] = { "0-1 3 9-12 | 0-1 3 9-12", "0-1 3 10-13 | 0-1 3 10-13",
					    "0-1 3 11-14 | 0-1 3 11-14",
					    "0-1 3 12-15 | 0-1 3 12-15" };
	struct evict *e = parsed("h2o:heavy=3,recent=4"),
		     *norm = parsed("h2o:heavy=3,recent=4,norm=1");
	struct batch_case c, all;
	int32_t name[2 * 64];
	void *state;

	for (int i = 0; i < 2 * 64; i++)
		name[i] = i % 64;
	case_decode_keys(&c, 16);
	case_decode_keys(&all, 16);
	state = h2o_prompt(&c, e, 12, 4);
	is_str(h2o_event(&c, e, 12, state, name, 12), "0-1 3 8-11 | 0-1 3 8-11",
	       "h2o after the prompt");
	for (int t = 12; t < 16; t++) {
		h2o_decode(&c, &all, e, t, state);
		is_str(h2o_event(&c, e, 8, state, name, t + 1), want[t - 12], "... and token %d",
		       t);
	}
	free(state);
	for (int i = 0; i < 2 * 64; i++)
		name[i] = i % 64;
	state = h2o_prompt(&all, norm, 12, 12);
	is_str(h2o_event(&all, norm, 12, state, name, 0), "0-1 3 8-11 | 0 3 6 8-11",
	       "h2o by the mean of the rows that saw a key");
	free(state);
	case_release(&c);
	case_release(&all);
	evict_free(e);
	evict_free(norm);
}

/* ---- rules ---- */

static const struct attn_shape odd = { 6, 2, 8, 16 };

/* Equal scores: the lowest positions stay. */
static void test_equal(void)
{
	struct evict *e = parsed("snapkv:budget=20,window=5,pool=max");
	struct rng rng = { 4 };
	struct batch_case c;
	struct event *x;
	struct ar_err err;

	case_make(&c, &rng, FILL_EQUAL, odd, 1, (int[]){ 77 });
	x = event_of(&c, e, 77, NULL);
	is_int(evict_ref(e, &x->call, &err), AR_OK, "all keys are equal");
	is_str(kept_text(x, NULL), "0-14 72-76 | 0-14 72-76", "the first ones stay");
	event_free(x);
	case_release(&c);
	evict_free(e);
}

/* The numbers of a slot: of K, V, and the state. */
static bool same_slot(const struct batch_case *c, const struct batch_case *old, int h, int slot,
		      int t)
{
	size_t dim = (size_t)c->b.shape.head_dim;
	size_t to = (size_t)((c->page[slot / 16] * 2 + h) * 16 + slot % 16) * dim;
	size_t from = (size_t)((old->page[t / 16] * 2 + h) * 16 + t % 16) * dim;

	return !memcmp(c->kv.k + to, old->kv.k + from, dim * 2) &&
	       !memcmp(c->kv.v + to, old->kv.v + from, dim * 2);
}

/* Eleven keys are behind the prompt. */
static void test_compaction(const char *text)
{
	struct evict *e = parsed(text);
	struct rng rng = { 5 }, again = { 5 };
	struct batch_case c, old;
	struct event *x;
	struct ar_err err;
	int n_wrong = 0, n_bad = 0;

	case_make(&c, &rng, FILL_NORMAL, odd, 1, (int[]){ 150 });
	case_make(&old, &again, FILL_NORMAL, odd, 1, (int[]){ 150 });
	x = event_of(&c, e, 139, calloc((size_t)c.n_page, 4096));
	x->req.n_key = 150;
	is_int(evict_ref(e, &x->call, &err), AR_OK, "%s: an event of 139 of 150 keys", text);
	for (int h = 0; h < 2; h++)
		for (int i = 0; i < x->req.n_keep + 11; i++) {
			const int32_t *keep = x->call.keep + h * x->req.n_keep;
			int t = i < x->req.n_keep ? keep[i] : 139 + i - x->req.n_keep;

			n_bad += i && i < x->req.n_keep && keep[i] <= keep[i - 1];
			n_wrong += !same_slot(&c, &old, h, i, t);
		}
	is_int(n_bad, 0, "... keeps ascending tokens");
	is_int(n_wrong, 0, "... and each moves to its place, the rest behind them");
	free(x->call.state);
	event_free(x);
	case_release(&c);
	case_release(&old);
	evict_free(e);
}

static void test_faults(const char *text)
{
	struct evict *e = parsed(text);
	struct rng rng = { 6 };
	struct batch_case c;
	struct event *x;
	struct ar_err err;
	int n = 0, n_wrong = 0;
	enum ar_status st;

	case_make(&c, &rng, FILL_NORMAL, odd, 1, (int[]){ 150 });
	case_cut(&c, (int[]){ 0 }, (int[]){ 150 });
	x = event_of(&c, e, 150, calloc((size_t)c.n_page, 4096));
	do {
		fault_arm(n++);
		st = evict_add_ref(
			e,
			&(struct attn_call){
				.b = &c.b, .kv = c.kv, .state = x->call.state, .q = c.q },
			&err);
		if (!st)
			st = evict_ref(e, &x->call, &err);
		n_wrong += fault_disarm() != (st == AR_NOMEM);
	} while (st);
	is_int(n_wrong, 0, "%s: no memory is an error, %d times", text, n - 1);
	free(x->call.state);
	event_free(x);
	case_release(&c);
	evict_free(e);
}

int main(void)
{
	static const char *const text[] = { "snapkv:budget=40,window=8",
					    "snapkv:budget=40,window=8,local=3,group=before,sink=2",
					    "h2o:heavy=20,recent=9", "streaming:sink=3,recent=50" };

	test_snapkv();
	test_streaming();
	test_h2o_scores(12);
	test_h2o_scores(4);
	test_h2o();
	test_equal();
	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		test_compaction(text[i]);
		test_faults(text[i]);
	}
	return done_testing();
}
