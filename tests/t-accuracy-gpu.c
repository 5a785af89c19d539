/* SPDX-License-Identifier: Apache-2.0 */
/* Distances between attention outputs: the device's are the reference's. */
#include "config.h"
#include "kernels/methods/accuracy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_TEST = 5 };

#if HAVE_CUDA
struct pair {
	struct attn_shape shape;
	int n_row;
	bf16_t *out, *dense;
	float *lse, *lse_dense;
	struct accuracy *ref, *dev;
	struct ar_err err;
};

static void make(struct pair *p, struct rng *rng)
{
	int dim = 64 << rng_below(rng, 3);
	size_t n, elems;

	p->shape = (struct attn_shape){ 1 + (int)rng_below(rng, 200), 1, dim, 128 };
	p->n_row = 1 + (int)rng_below(rng, 300);
	n = (size_t)p->n_row * (size_t)p->shape.q_heads;
	elems = n * (size_t)dim;
	p->out = gpu_host(elems * sizeof *p->out);
	p->dense = gpu_host(elems * sizeof *p->dense);
	p->lse = gpu_host(n * sizeof *p->lse);
	p->lse_dense = gpu_host(n * sizeof *p->lse_dense);
	p->ref = gpu_host((size_t)p->shape.q_heads * sizeof *p->ref);
	p->dev = gpu_host((size_t)p->shape.q_heads * sizeof *p->dev);
	for (size_t i = 0; i < elems; i++) {
		float x = ldexpf(rng_normal(rng), (int)rng_below(rng, 60) - 30);

		p->dense[i] = bf16_from_f32(x);
		p->out[i] = bf16_from_f32(x * (1 + 0.1f * rng_normal(rng)));
	}
	for (size_t i = 0; i < n; i++) {
		p->lse_dense[i] = rng_normal(rng);
		p->lse[i] = rng_below(rng, 20) ? p->lse_dense[i] - rng_normal(rng) / 8 : -INFINITY;
		if (!rng_below(rng, 20)) /* a row that saw no key */
			memset(p->out + i * (size_t)dim, 0, (size_t)dim * sizeof *p->out);
	}
}

static void release(struct pair *p)
{
	free(p->out);
	free(p->dense);
	free(p->lse);
	free(p->lse_dense);
	free(p->ref);
	free(p->dev);
	gpu_free_all();
}

static enum ar_status reference(struct pair *p)
{
	return accuracy_measure(&p->shape, p->n_row, p->out, p->dense, p->lse, p->lse_dense, p->ref,
				&p->err);
}

static enum ar_status device(struct pair *p)
{
	size_t n = (size_t)p->n_row * (size_t)p->shape.q_heads;
	size_t bytes = n * (size_t)p->shape.head_dim * sizeof *p->out;
	void *work = gpu_new(accuracy_work_bytes(&p->shape, p->n_row), 0xff);

	return accuracy_measure_device(&p->shape, p->n_row, gpu_copy(p->out, bytes),
				       gpu_copy(p->dense, bytes), gpu_copy(p->lse, 4 * n),
				       gpu_copy(p->lse_dense, 4 * n), work, NULL, p->dev, &p->err);
}

/* Sums have the reference's bits; the masses are as good as exp() is. */
static void test_equal(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 40), exact = 0, mass = 0;

	for (int i = 0; i < n; i++) {
		struct rng rng = { (uint64_t)i };
		struct pair p;
		bool same = true, near = true;

		make(&p, &rng);
		gpu_must(reference(&p), &p.err);
		gpu_must(device(&p), &p.err);
		for (int h = 0; h < p.shape.q_heads; h++) {
			const struct accuracy *x = &p.ref[h], *y = &p.dev[h];

			same &= x->rel_l2 == y->rel_l2 && x->cosine == y->cosine &&
				x->max_abs == y->max_abs;
			near &= fabs(x->mass_recall - y->mass_recall) <= 1e-15;
		}
		exact += same;
		mass += near;
		release(&p);
	}
	is_int(exact, n, "relative L2, cosine and the largest difference are the reference's");
	is_int(mass, n, "the mass is, to 1e-15");
}

/* One value of the pair that is not finite, and in two places: both name the first. */
static void test_refused(void)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY };
	int refused = 0, same = 0;
	char msg[sizeof((struct ar_err *)0)->msg];

	for (int i = 0; i < 12; i++) {
		struct rng rng = { 1000 + (uint64_t)i };
		struct pair p;
		size_t n, at;

		make(&p, &rng);
		n = (size_t)p.n_row * (size_t)p.shape.q_heads;
		for (int k = 0; k < 2; k++) {
			at = rng_below(&rng, n);
			if (i % 4 < 2)
				(i % 4 ? p.out : p.dense)[at * (size_t)p.shape.head_dim + 5] =
					bf16_from_f32(odd[i / 4]);
			else
				(i % 4 == 2 ? p.lse : p.lse_dense)[at] = odd[i / 4 % 2];
		}
		refused += reference(&p) == AR_DATA;
		memcpy(msg, p.err.msg, sizeof msg);
		refused += device(&p) == AR_DATA;
		same += !strcmp(msg, p.err.msg);
		release(&p);
	}
	is_int(refused, 24, "outputs and log sums that are not finite are refused");
	is_int(same, 12, "the first head and row are named");
}

/* A row that is not finite must not be reported by the next call. */
static void test_again(void)
{
	struct rng rng = { 7 };
	struct pair p;
	float lse;

	make(&p, &rng);
	lse = p.lse[0];
	p.lse[0] = NAN;
	device(&p);
	p.lse[0] = lse;
	ok(device(&p) == AR_OK, "the next outputs are measured anew");
	release(&p);
}

static void run_all(void)
{
	test_equal();
	test_refused();
	test_again();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
