/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes that run while chunks end give the bits that they give alone, as do the chunks, and what
 * comes after them waits for both.  Outputs are copied by the stream itself, so that a copy that
 * does not wait is seen.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { MOST_REQ = 40, TIMES = 6 };

/* Requests with as many rows each, after ctx[r] tokens or, if there is one number, all after it. */
struct part {
	int n_req, rows, ctx[3];
};

static const struct mix {
	const char *what;
	struct attn_shape shape;
	bool whole; /* tiles are not cut */
	struct part chunks, decodes;
} mixes[] = {
	{ "many tiles, one decode",
	  { 16, 4, 128, 128 },
	  false,
	  { 1, 1500, { 900 } },
	  { 1, 1, { 3000 } } },
	{ "one long tile, one short decode",
	  { 4, 1, 128, 128 },
	  true,
	  { 1, 30, { 20000 } },
	  { 4, 1, { 500 } } },
	{ "one short tile, many decodes",
	  { 8, 2, 128, 64 },
	  true,
	  { 1, 30, { 100 } },
	  { 40, 1, { 9000 } } },
	{ "parts that share rows, ragged decodes",
	  { 16, 4, 128, 128 },
	  false,
	  { 1, 100, { 3000 } },
	  { 3, 1, { 5000, 70, 2100 } } },
	{ "head size 64, ragged chunks",
	  { 12, 3, 64, 64 },
	  false,
	  { 3, 400, { 1, 1200, 300 } },
	  { 3, 1, { 40, 7000, 900 } } },
};
enum { N_MIX = sizeof mixes / sizeof *mixes, N_TEST = N_MIX };

#if HAVE_CUDA
#include <cuda_runtime_api.h>

/* Chunks or decodes on the device. */
struct side {
	bool decodes;
	struct batch_case c;
	struct attn_batch b;
	bf16_t *q, *out, *copy, *want; /* want: on the host */
	struct kv_cache kv;
	void *work;
	size_t bytes, work_bytes;
};

static void make_side(struct side *s, const struct mix *m, const struct part *p, bool decodes,
		      struct rng *rng)
{
	int ctx[MOST_REQ], rows[MOST_REQ];
	struct attn_limits most;

	for (int r = 0; r < p->n_req; r++) {
		ctx[r] = p->ctx[p->n_req > 3 ? 0 : r];
		rows[r] = p->rows;
	}
	s->decodes = decodes;
	case_chunks(&s->c, rng, FILL_NORMAL, m->shape, p->n_req, ctx, rows);
	s->c.b.n_sm = decodes || m->whole ? 0 : gpu_n_sm();
	if (!decodes)
		case_plan(&s->c, attend_plan_rows, 0);
	s->b = gpu_batch(&s->c.b);
	most = (struct attn_limits){ p->n_req, s->c.b.rows.n_row, s->c.b.keys.max_kv_blk,
				     s->c.b.n_sm, s->c.b.keys.n_page };
	s->bytes = s->c.q_len * sizeof *s->q;
	s->work_bytes = decodes ? decode_work_bytes(&m->shape, &most) :
				  executor_find("paged")->work_bytes(&m->shape, &most, 0);
	s->q = gpu_copy(s->c.q, s->bytes);
	s->kv = gpu_kv(&s->c.kv, s->c.kv_len);
	s->out = gpu_new(s->bytes, 0xff);
	s->copy = gpu_new(s->bytes, 0xff);
	s->work = gpu_new(s->work_bytes, 0xff);
	s->want = gpu_host(s->bytes);
}

static void launch(const struct side *s, bool beside)
{
	static const struct executor_lists all;
	const struct attn_call call = {
		.b = &s->b, .q = s->q, .kv = s->kv, .out = s->out, .work = s->work, .beside = beside
	};
	struct ar_err err;

	gpu_must(s->decodes ? decode_enqueue(&call, 0, NULL, &err) :
			      executor_find("paged")->enqueue(&call, &all, &err),
		 &err);
}

static void forget(const struct side *s)
{
	gpu_fill(s->out, s->bytes, 0xff);
	gpu_fill(s->copy, s->bytes, 0xff);
	gpu_fill(s->work, s->work_bytes, 0xff);
}

static void read_alone(const struct side *s)
{
	forget(s);
	launch(s, false);
	gpu_read(s->want, s->out, s->bytes);
}

static bool same(const struct side *s)
{
	bf16_t *got = gpu_host(s->bytes);
	bool good;

	gpu_read(got, s->copy, s->bytes);
	good = !memcmp(got, s->want, s->bytes);
	free(got);
	return good;
}

/* Count runs of both that differ from each alone. */
static int count_off(const struct side *chunks, const struct side *decodes)
{
	int off = 0;

	for (int i = 0; i < TIMES; i++) {
		forget(chunks);
		forget(decodes);
		launch(chunks, false);
		launch(decodes, true);
		cudaMemcpyAsync(chunks->copy, chunks->out, chunks->bytes, cudaMemcpyDeviceToDevice,
				NULL);
		cudaMemcpyAsync(decodes->copy, decodes->out, decodes->bytes,
				cudaMemcpyDeviceToDevice, NULL);
		off += !same(chunks) || !same(decodes);
	}
	return off;
}

static void test_mix(const struct mix *m, uint64_t seed)
{
	struct rng rng = { rng_mix(seed) };
	struct side chunks, decodes;

	make_side(&chunks, m, &m->chunks, false, &rng);
	make_side(&decodes, m, &m->decodes, true, &rng);
	read_alone(&chunks);
	read_alone(&decodes);
	is_int(count_off(&chunks, &decodes), 0, "%s", m->what);
	gpu_free_all();
	free(chunks.want);
	free(decodes.want);
	case_release(&chunks.c);
	case_release(&decodes.c);
}
#endif

static void run_all(void)
{
#if HAVE_CUDA
	for (int i = 0; i < N_MIX; i++)
		test_mix(&mixes[i], (uint64_t)i + 11);
#endif
}

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
