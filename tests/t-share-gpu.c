/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of shared tokens on the device against the reference. */
#include "config.h"
#include "kernels/share/share.h"

#include <stdlib.h>

#include "tests/gpu_both.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_TEST = 1 };

#if HAVE_CUDA

enum { CASES = 40, PLANES = 6, PAGES = 9, COPIES = 4, PAGE_TOK = 64 };

static size_t page_bytes(const struct share_plane *p, int n_tok)
{
	return (size_t)p->heads * p->row * (size_t)n_tok;
}

/* Planes of keys, of scales and of states. */
static struct share_plane draw_plane(struct rng *r)
{
	static const size_t rows[] = { 256, 128, 656, 4, 0 };
	struct share_plane p = { .row = rows[below(r, 5)], .heads = 1, .group = below(r, 2) };

	if (p.row)
		p.heads = 1 + below(r, 8);
	p.page = p.row ? page_bytes(&p, PAGE_TOK) : 4 * (size_t)(1 + below(r, 300));
	return p;
}

/* Copies from the first pages to the last ones. */
static void draw_copies(struct share_copy *c, struct rng *r)
{
	for (int i = 0; i < COPIES; i++)
		c[i] = (struct share_copy){ below(r, 2), below(r, PAGES - COPIES), PAGES - 1 - i,
					    1 + below(r, PAGE_TOK - 1) };
}

static bool agree(struct rng *r)
{
	struct share_plane host[PLANES], dev[PLANES];
	struct share_copy copy[COPIES];
	struct both mem[PLANES];
	struct ar_err err;
	size_t widest = 0;
	bool same = true;

	draw_copies(copy, r);
	for (int i = 0; i < PLANES; i++) {
		host[i] = dev[i] = draw_plane(r);
		mem[i] = both_normal(PAGES * host[i].page / 2, r);
		host[i].mem = mem[i].host;
		dev[i].mem = mem[i].dev;
		widest = host[i].page > widest ? host[i].page : widest;
	}
	share_pages_ref(host, PLANES, copy, COPIES);
	gpu_must(share_pages(gpu_copy(dev, sizeof dev), PLANES, widest, gpu_copy(copy, sizeof copy),
			     COPIES, NULL, &err),
		 &err);
	for (int i = 0; i < PLANES; i++) {
		same = same && equal(&mem[i]);
		both_free(&mem[i]);
	}
	return same;
}

static void run_all(void)
{
	struct rng r = { 2 };
	int n = 0;

	for (int i = 0; i < CASES; i++)
		n += agree(&r);
	is_int(n, CASES, "the device copies what the reference copies, and nothing else");
	gpu_free_all();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
