/* SPDX-License-Identifier: Apache-2.0 */
/* Droppers on the cuda backend. */
#include "config.h"

#include "tests/drops-case.h"
#include "tests/revive-case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_OWN = 9 + 2 * 3, N_TEST = DROPS_N_TEST + REVIVE_N_TEST + N_OWN };

#if HAVE_CUDA
#include "replay/engine/backend_cuda.h"

static struct prof *prof;

static void read_out(void *self, size_t at, size_t n, bf16_t *out)
{
	const struct cuda *c = self;

	if (cudaMemcpy(out, c->pass.out + at, n * sizeof *out, cudaMemcpyDeviceToHost) !=
	    cudaSuccess)
		bail_out("cannot read the device");
}

static const struct attn_engine *engine_of(const void *self)
{
	return &((const struct cuda *)self)->engine;
}

/* Whole layers: a prompt of which rows are dropped before the MLP or after it, beside a decode,
 * then decodes from graphs. */
static void test_decoder(const char *method, bool eager)
{
	struct batch_entry
		first = { .req = 1, .n_tok = 20, .known = 20 },
		prompt[] = { { .n_tok = 500, .known = 500, .n_emit = 1 },
			     { .req = 1,
			       .start = 20,
			       .n_tok = 1,
			       .kind = ROW_DECODE,
			       .n_emit = 1 } },
		decode[] = {
			{ .start = 500, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
			{ .req = 1, .start = 21, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
		};
	const struct case_how how = {
		.method = method, .mixed = true, .decoder = true, .eager = eager, .prof = prof
	};
	struct iter_cost cost;
	struct backend_case c;
	struct ar_err err;
	const struct drops *d;
	enum ar_status st = case_open(&c, &backend_cuda, &how, &err);

	if (st == AR_NODEV) {
		skip(3, "no cuBLAS");
		case_close(&c);
		return;
	}
	if (st)
		bail_out("%s", err.msg);
	d = &engine_of(c.self)->drops;
	case_run(&c, &first, 1, &cost);
	case_run(&c, prompt, 2, &cost);
	ok(cost.cost_ns > 0 && (d->back || d->segment[2].n[0] < d->segment[1].n[0]) &&
		   d->segment[2].n[0] < 500 && d->segment[1].n[0] < 500 && d->segment[2].n[1] == 1,
	   "%s: %d, then %d rows stay", method, d->segment[1].n[0], d->segment[2].n[0]);
	ok(!prof || cost.phase_kernels[PHASE_DROP] > 4, "%s: %d kernels drop them", method,
	   cost.phase_kernels[PHASE_DROP]);
	case_run(&c, decode, 2, &cost);
	ok(cost.cost_ns > 0 && !cost.phase_kernels[PHASE_DROP], "%s: none in decodes", method);
	case_close(&c);
}

/* Whole layers: decodes that revive tokens, from a graph that is padded, or without. */
static void test_revival(bool eager)
{
	const struct case_how how = { .method = "dense+lazyllm:layers=0:0.5+2:0.6,aux-revival=1,"
						"revive-max=5",
				      .every = true,
				      .decoder = true,
				      .eager = eager,
				      .prof = prof };
	struct batch_entry prompt[] = { { .n_tok = 300, .known = 300, .n_emit = 1 },
					{ .req = 1, .n_tok = 120, .known = 120, .n_emit = 1 },
					{ .req = 2, .n_tok = 90, .known = 90, .n_emit = 1 } };
	struct layer_work work[2];
	struct iter_cost cost;
	struct backend_case c;
	struct ar_err err;
	const struct drops *d;
	int n[3] = { 0 };
	enum ar_status st = case_open(&c, &backend_cuda, &how, &err);

	if (st == AR_NODEV) {
		skip(3, "no cuBLAS");
		case_close(&c);
		return;
	}
	if (st)
		bail_out("%s", err.msg);
	d = &engine_of(c.self)->drops;
	case_run(&c, prompt, 3, &cost);
	backend_layer_work(&backend_cuda, c.self, 3, &work[0]);
	for (uint32_t i = 0; i < 12; i++) {
		struct batch_entry e[] = {
			{ .start = 300 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
			{ .req = 1, .start = 120 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
			{ .req = 2, .start = 90 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		};

		case_run(&c, e, 3, &cost);
		for (int s = 1; s < 3; s++)
			for (size_t k = 0; k < 3; k++)
				n[s] += rows_n_back(&d->segment[s], k);
	}
	backend_layer_work(&backend_cuda, c.self, 3, &work[1]);
	ok(n[1] > 5 && n[2] > 5, "%s: %d and %d tokens are revived", eager ? "eager" : "graphs",
	   n[1], n[2]);
	is_int((int)(work[1].n_row - work[0].n_row), 36 + n[2], "... which count as rows");
	ok(cost.cost_ns > 0 && (!prof || cost.phase_kernels[PHASE_DROP] > 8), "... by %d kernels",
	   cost.phase_kernels[PHASE_DROP]);
	case_close(&c);
}

static void run_all(void)
{
	drops_test_all(&backend_cuda, read_out, engine_of, 0.02);
	revive_test_all(&backend_cuda, read_out, engine_of, 0.02);
	test_revival(false);
	test_revival(true);
	test_decoder("dense+uniprefill:p=0.5,block=16,last-q=20,sinks=10,min-tokens=0,layers=0+2",
		     false);
	test_decoder("dense+uniprefill:p=0.5,block=16,last-q=20,sinks=10,min-tokens=0,layers=0+2,"
		     "reconstitute=1",
		     false);
	test_decoder("dense+lazyllm:layers=0:0.5+2:0.5", true);
}
#else
#define run_all NULL
#endif

int main(void)
{
#if HAVE_CUDA
	struct ar_err err;

	if (prof_open(&prof, &err)) /* before any call of CUDA */
		diag("%s", err.msg);
#endif
	return gpu_main(N_TEST, run_all);
}
