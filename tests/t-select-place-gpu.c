/* Masks that follow from places alone: the device's bits are the reference's. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/method.h"
#include "tests/batch_case.h"
#include "tests/gpu.h"
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
	struct batch_case c;
	struct attn_batch b;
	uint32_t *mask, *got;
	size_t bytes;
	struct ar_err err;
	bool same;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 9000);
		rows[r] = 1 + (int)rng_below(&rng, 700);
		len[r] = ctx[r] + rows[r] + (int)rng_below(&rng, 600);
	}
	case_make_bare(&c, &rng, s, n, len);
	case_cut(&c, ctx, rows);
	bytes = case_mask_words(&c) * sizeof *mask;
	c.mask = malloc(bytes);
	got = malloc(bytes);
	b = gpu_batch(&c.b);
	mask = gpu_new(bytes, 0xa5);
	if (m->selector->ref(&c.b, m->self, 3, NULL, &c.kv, NULL,
			     &(struct selection){ .mask = c.mask }, &err) ||
	    m->selector->enqueue(&b, m->self, 3, NULL, &c.kv, NULL,
				 &(struct selection){ .mask = mask }, NULL, NULL, &err))
		bail_out("%s", err.msg);
	gpu_read(got, mask, bytes);
	same = !memcmp(got, c.mask, bytes);
	free(got);
	gpu_free_all();
	case_release(&c);
	return same;
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 40);

	for (int i = 0; i < N_SPEC; i++) {
		struct method *m;
		struct ar_err err;
		int good = 0;

		if (method_parse(&m, specs[i], &err))
			bail_out("%s", err.msg);
		for (int k = 0; k < n; k++)
			good += equal(m, (uint64_t)(i * 100000 + k));
		is_int(good, n, "%s", specs[i]);
		method_free(m);
	}
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	plan(N_SPEC);
	if (!gpu_usable())
		skip(N_SPEC, "no usable GPU");
	else
		run_all();
	return done_testing();
}
