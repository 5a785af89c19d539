/* SPDX-License-Identifier: Apache-2.0 */
/* Whole methods on the device: outputs, counts and phases against the reference. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

static const struct {
	const char *name, *phases;
} methods[] = {
	{ "dense", "A" },
	{ "flashprefill", "SMA" },
	{ "flashprefill:alpha=0.3,window=1,last-n=1", "SMA" },
	{ "compact-fp", "SMA" },
	{ "compact-fp:union=sub-group", "SMA" },
	{ "compact-fp:union=q-block,alpha=0.3", "SMA" },
	{ "compact-fp:alpha=0.3,last-n=2", "SMA" },
	{ "compact-fp-copy", "SMCA" },
	{ "compact-fp-copy:union=sub-group", "SMCA" },
	{ "union-bs", "SMA" },
	{ "union-bs:alpha=0.3,last-n=1", "SMA" },
	{ "trishape:recent=128,start=128,last-dense=0", "SMA" },
	{ "ashape:init=100,local=150", "SA" },
	{ "ashape:init=10,local=300,last=200,block=64", "SA" },
	{ "xattention:threshold=0.7", "SMA" },
	{ "quoka:kv-ratio=1", "SCA" },
};
enum { N_METHOD = sizeof methods / sizeof *methods, N_TEST = 3 * N_METHOD };

#if HAVE_CUDA
static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* Phases of layer 7 as letters. */
static void note_phase(void *ctx, int layer, enum phase phase)
{
	char *text = ctx;

	if (layer != 7)
		phase = PHASE_NONE;
	strcat(text, phase == PHASE_SELECT   ? "S" :
		     phase == PHASE_METADATA ? "M" :
		     phase == PHASE_COPY     ? "C" :
		     phase == PHASE_ATTEND   ? "A" :
					       "?");
}

struct device_side {
	struct attn_batch b;
	struct kv_cache kv;
	bf16_t *q, *state, *out;
	void *work;
};

static void side_make(struct device_side *d, const struct batch_case *c, const struct method *m,
		      const struct attn_limits *l)
{
	size_t q_bytes = c->q_len * sizeof *c->q;

	d->b = gpu_batch(&c->b);
	d->kv = gpu_kv(&c->kv, c->kv_len);
	d->q = gpu_copy(c->q, q_bytes);
	d->out = gpu_new(q_bytes, 0xff);
	d->state = gpu_copy(c->state,
			    (size_t)c->n_page *
				    selector_find("flashprefill")->state_bytes(NULL, &c->b.shape));
	d->work = gpu_new(method_work_bytes(method_prefill(m), &c->b.shape, l), 0xff);
}

static double relative_l2(const bf16_t *got, const bf16_t *want, size_t n)
{
	double diff = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		double a = bf16_to_f32(got[i]), b = bf16_to_f32(want[i]);

		diff += (a - b) * (a - b);
		sum += b * b;
	}
	return sqrt(diff / sum);
}

/* Rounding may decide about a block in a thousand. */
static bool near(int64_t got, int64_t want, int64_t total)
{
	return llabs(got - want) <= 2 + total / 1000;
}

static bool counts_near(const struct selection_count *got, const struct selection_count *want,
			int n)
{
	bool good = true;

	for (int i = 0; i < n; i++)
		good &= got[i].tiles_total == want[i].tiles_total &&
			got[i].chunk_total == want[i].chunk_total &&
			got[i].chunk_full == want[i].chunk_full &&
			got[i].chunk_open == want[i].chunk_open &&
			got[i].group_total == want[i].group_total &&
			got[i].qunion_total == want[i].qunion_total &&
			got[i].sub_total == want[i].sub_total &&
			got[i].kv_total == want[i].kv_total &&
			got[i].exec_total == want[i].exec_total &&
			got[i].empty_rows == want[i].empty_rows &&
			near(got[i].tiles_sel, want[i].tiles_sel, want[i].tiles_total) &&
			near(got[i].chunk_sel, want[i].chunk_sel, want[i].chunk_total) &&
			near(got[i].qunion_sel, want[i].qunion_sel, want[i].qunion_total) &&
			near(got[i].sub_sel, want[i].sub_sel, want[i].sub_total) &&
			near(got[i].kv_sel, want[i].kv_sel, want[i].kv_total) &&
			near(got[i].group_sel, want[i].group_sel, want[i].group_total) &&
			near(got[i].exec_sel, want[i].exec_sel, want[i].exec_total * 10);
	return good;
}

static void test_method(struct batch_case *c, int which)
{
	struct attn_limits limits = {
		.max_req = 4, .max_row = 4096, .max_kv_blk = 64, .max_page = c->b.keys.n_page
	};
	const struct selector_env env = { .shape = c->b.shape, .n_layers = 8, .device = true };
	struct selection_count got[2], want[2];
	size_t n = c->q_len;
	bf16_t *out = malloc(n * sizeof *out), *ref = malloc(n * sizeof *ref);
	char phases[32] = "";
	struct device_side d;
	struct method *m;
	struct ar_err err;

	must(method_parse(&m, methods[which].name, &err), &err);
	must(method_open(m, &env, &err), &err);
	c->b.n_sm = limits.n_sm = gpu_n_sm();
	c->b.tail = method_tail(method_prefill(m));
	c->b.n_tile = method_plan(method_prefill(m), &c->b, NULL);
	free(c->tile);
	c->tile = calloc((size_t)c->b.n_tile, sizeof *c->tile);
	method_plan(method_prefill(m), &c->b, c->tile);
	c->b.tile = c->tile;
	c->b.n_part = executor_count_parts(c->tile, c->b.n_tile);
	side_make(&d, c, m, &limits);
	must(method_ref(method_prefill(m),
			&(struct attn_call){
				.b = &c->b, .q = c->q, .kv = c->kv, .state = c->state, .out = ref },
			want, &err),
	     &err);
	must(method_enqueue(method_prefill(m),
			    &(struct attn_call){ .b = &d.b,
						 .layer = 7,
						 .q = d.q,
						 .kv = d.kv,
						 .state = d.state,
						 .out = d.out,
						 .work = d.work },
			    note_phase, phases, &err),
	     &err);
	gpu_read(out, d.out, n * sizeof *out);
	must(method_count_device(method_prefill(m), &c->b, d.work, got, &err), &err);
	ok(relative_l2(out, ref, n) < 1e-2, "outputs of %s are the reference's up to rounding",
	   methods[which].name);
	ok(counts_near(got, want, c->b.shape.kv_heads), "the counts are the reference's too");
	is_str(phases, methods[which].phases, "its phases are announced in order");
	gpu_free_all();
	method_free(m);
	free(out);
	free(ref);
}

static void run_all(void)
{
	static const struct attn_shape shape = {
		.q_heads = 16, .kv_heads = 2, .head_dim = 128, .page_tok = 128
	};
	struct rng rng = { 11 };
	struct batch_case c;
	struct method *m;
	struct ar_err err;

	case_make(&c, &rng, FILL_BLOCKS, shape, 3, (int[]){ 3000, 700, 131 });
	case_cut(&c, (int[3]){ 0 }, c.len);
	must(method_parse(&m, "flashprefill", &err), &err);
	must(method_prefill(m)->selector->ref(
		     &(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .state = c.state },
		     method_prefill(m)->self, &(struct selection){ .mask = c.mask }, &err),
	     &err);
	method_free(m);
	case_cut(&c, (int[]){ 2500, 333, 0 }, (int[]){ 500, 200, 131 });
	for (int i = 0; i < N_METHOD; i++)
		test_method(&c, i);
	case_release(&c);
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	plan(N_TEST);
	if (gpu_usable())
		run_all();
	else
		skip(N_TEST, "no usable GPU");
	return done_testing();
}
