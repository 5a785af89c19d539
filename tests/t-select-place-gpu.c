/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors that use positions only: the masks on the device equal the reference bit for bit. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

static const char *const specs[] = {
	"select=density/union=none/exec=blocksparse",
	"select=density,density=0.5,block=64,seed=9/union=none/exec=blocksparse",
	"select=density,density=0.25,per=group/union=group/exec=paged",
	"select=density,density=1/union=none/exec=blocksparse",
	"trishape",
	"trishape:start=0,recent=256,last-dense=500",
	"trishape:start=192,recent=64,block=64",
};
enum { N_SPEC = sizeof specs / sizeof *specs };

#if HAVE_CUDA
/* A ragged batch of up to five chunks that begin and end anywhere. */
static bool equal(const struct method *m, uint64_t seed)
{
	struct rng rng = { seed };
	struct attn_shape s = { 8, 2, 64, method_page_tok(m) };
	int n = 1 + (int)rng_below(&rng, 5), len[5], ctx[5], rows[5];
	struct select_pair p = { .selector = method_prefill(m)->selector,
				 .self = method_prefill(m)->self,
				 .layer = 3 };
	bool same;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 9000);
		rows[r] = 1 + (int)rng_below(&rng, 700);
		len[r] = ctx[r] + rows[r] + (int)rng_below(&rng, 600);
	}
	case_make_bare(&p.c, &rng, s, n, len);
	case_cut(&p.c, ctx, rows);
	p.c.mask = malloc(case_mask_words(&p.c) * sizeof *p.c.mask);
	same = !memcmp(select_both(&p), p.c.mask, case_mask_words(&p.c) * sizeof *p.c.mask);
	select_release(&p);
	return same;
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 40);

	for (int i = 0; i < N_SPEC; i++) {
		struct method *m;
		struct ar_err err;
		int good = 0;

		gpu_must(method_parse(&m, specs[i], &err), &err);
		for (int k = 0; k < n; k++)
			good += equal(m, (uint64_t)(i * 100000 + k));
		is_int(good, n, "%s", specs[i]);
		method_free(m);
	}
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_SPEC, run_all);
}
