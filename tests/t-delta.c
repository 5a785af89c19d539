/* SPDX-License-Identifier: Apache-2.0 */
/* The references of a gated DeltaNet layer, its plan and its refusals. */
#include "config.h"
#include "kernels/delta/delta.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/delta/delta_work.h"
#include "kernels/delta/delta_walk.h"
#include "tests/delta_case.h"
#include "tests/state_case.h"
#include "tests/tap.h"

/* ---- worked example ---- */

/* Three rows of one key head of 2 channels and two value heads of 3; the convolution is 3 wide.
 * Results by numpy in double, from S = decay (1 - beta k k^T) S + beta k v^T. */
static const float worked_qkvz[] = { 1,	      -1.625f, -1,	-2,	 0.625f,  0.375f,  -0.75f,
				     -0.75f,  0.625f,  2,	0.5f,	 1.625f,  -0.25f,  1.25f,
				     0.125f,  1.25f,   0.75f,	-1.75f,	 -1.75f,  -1.875f, 1.25f,
				     -1.375f, 1.625f,  1,	-1.125f, -0.125f, 0.5f,	   1.75f,
				     0.625f,  -0.25f,  1.5f,	-2,	 -2,	  0.25f,   -1.125f,
				     -1.875f, 0.625f,  -0.75f,	1.375f,	 0,	  0,	   2,
				     0,	      0.25f,   -0.625f, 2,	 1.875f,  -0.375f };
static const float worked_ba[] = { 1.75f,  -1.75f, 1.5f, 1.25f,	  -0.75f, 1.375f,
				   0.625f, 1.625f, 2,	 -0.875f, 1,	  -0.625f };
static const float worked_conv[] = { 0.5f, -0.75f,  0,	     -0.5f,  -1.5f,   0.375f,
				     0,	   -1.875f, -1.875f, 0.25f,  -1.75f,  0.875f,
				     0.5f, 0.125f,  0.75f,   1.5f,   -1.125f, 2,
				     1.5f, 0,	    1.375f,  -1,     0.5f,    -1,
				     1,	   -0.25f,  -0.5f,   0.375f, -0.875f, 1.25f };
static const float worked_norm[] = { -1.375f, 0.5f, 1.875f };
static const float worked_tail[] = { 0.125f, -0.875f, 2,      -0.375f, -1.125f, 1.5f, -1,
				     1.25f,  1,	      0.5f,   1.75f,   0.125f,	2,    0.75f,
				     1.875f, 2,	      0.875f, 1,       0.625f,	1.25f };
static const float worked_state[] = { -0.125f, 1.5f,  -0.625f, 0.125f,	-1.125f, -0.375f,
				      1.875f,  -1.5f, 1.75f,   -0.375f, -0.375f, 2 };
static const float worked_out_fresh[] = { -0.33117979f,
					  0.928128899f,
					  0.149313994f,
					  -0.496957387f,
					  -0.00320110394f,
					  3.07362611f,
					  0.0816406934f,
					  -0.737996586f,
					  1.07487367f,
					  -0.147231829f,
					  0.494998582f,
					  0.526408505f,
					  -0,
					  -0.00364067037f,
					  -0.629285061f,
					  -0.233989862f,
					  0.691877687f,
					  -0.431031922f };
static const float worked_state_fresh[] = { 0.610840544f,   0.362499968f,    0.477910486f,
					    0.0861583569f,  -0.00209652534f, 0.161640333f,
					    0.190439444f,   0.268821119f,    0.865435759f,
					    0.00840800807f, 0.0616496779f,   0.112445099f };
static const float worked_out_on[] = { -0.123511303f,
				       1.11781642f,
				       0.0929293947f,
				       1.32278976f,
				       0.0417853672f,
				       -1.20223495f,
				       -0.233394087f,
				       -0.980005429f,
				       0.753417323f,
				       -0.0766538545f,
				       0.973989394f,
				       0.208337255f,
				       -0,
				       -0.0883999002f,
				       -0.364322261f,
				       -0.141797869f,
				       1.07656522f,
				       -0.319168579f };
static const float worked_state_on[] = {
	0.606901082f, 0.393724708f, 0.512872736f, 0.178321964f,	  -0.272358515f, 0.200048469f,
	0.220044105f, 0.435852853f, 0.849992602f, 0.00796741527f, 0.140172836f,	 0.122206566f
};

static const float worked_a_log[] = { -1, 0.5f }, worked_dt_bias[] = { 0.25f, -0.5f };
static const struct delta_spec worked = { 1, 2, 2, 3, 3 };
enum { ROWS = 3 };

static void narrow(bf16_t *to, const float *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bf16_from_f32(from[i]);
}

/* Run the rows [0, cut), then the others. */
static void test_worked(bool fresh, int cut)
{
	bf16_t qkvz[ROWS * 16], ba[ROWS * 4], conv[30], norm[3], tail[20], last[20], out[ROWS * 6];
	float state[12], got[ROWS * 6];
	struct delta_call c = { .spec = worked,
				.w = { conv, worked_a_log, worked_dt_bias, norm, 1e-6f },
				.state = { state, tail },
				.qkvz = qkvz,
				.ba = ba,
				.qkvz_stride = 16,
				.ba_stride = 4,
				.out = out };
	const struct state_seq seq[2] = { { 0, cut, 0, fresh, 0 },
					  { cut, ROWS - cut, 0, fresh && !cut, 0 } };

	narrow(qkvz, worked_qkvz, ROWS * 16);
	narrow(ba, worked_ba, ROWS * 4);
	narrow(conv, worked_conv, 30);
	narrow(norm, worked_norm, 3);
	narrow(tail, worked_tail, 20);
	memcpy(state, worked_state, sizeof state);
	memset(out, 0xff, sizeof out);
	for (int i = 0; i < 2; i++)
		if (seq[i].n_row)
			delta_prefill_ref(&c, &(struct state_batch){ 1, 1, &seq[i], NULL });
	bf16_widen(got, out, ROWS * 6);
	is_f32(got, fresh ? worked_out_fresh : worked_out_on, ROWS * 6, 1e-6, 0x1p-8,
	       "the worked example, %s, cut at row %d", fresh ? "fresh" : "continued", cut);
	is_f32(state, fresh ? worked_state_fresh : worked_state_on, 12, 2e-6, 0, "its state");
	for (int i = 0; i < 2; i++)
		memcpy(last + i * 10, qkvz + (i + 1) * 16, 10 * sizeof *last);
	ok(!memcmp(tail, last, sizeof tail), "its last rows");
}

/* ---- batches ---- */

static const struct delta_spec small = { 2, 4, 8, 8, 4 };

/* The case's results as bytes, to be compared. */
struct result {
	bf16_t *out, *tail;
	float *state;
};

static void *copy(const void *from, size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		bail_out("out of memory");
	return memcpy(p, from, bytes);
}

static struct result result_of(const struct delta_case *c)
{
	return (struct result){ copy(c->call.out, delta_case_out(c) * sizeof(bf16_t)),
				copy(c->call.state.tail, delta_case_tail(c) * sizeof(bf16_t)),
				copy(c->call.state.s, delta_case_state(c) * sizeof(float)) };
}

static bool same(const struct delta_case *c, const struct result *r)
{
	return !memcmp(r->out, c->call.out, delta_case_out(c) * sizeof(bf16_t)) &&
	       !memcmp(r->tail, c->call.state.tail, delta_case_tail(c) * sizeof(bf16_t)) &&
	       !memcmp(r->state, c->call.state.s, delta_case_state(c) * sizeof(float));
}

static void result_free(struct result *r)
{
	free(r->out);
	free(r->tail);
	free(r->state);
}

/* The same case again, for the same seed. */
static void make(struct delta_case *c)
{
	struct rng rng = { 7 };

	delta_case_make(c, &rng, &small, DELTA_MIXED, 40, 4);
}

static void prefill(const struct delta_case *c, int n_req, const int32_t *row0, const int32_t *pos0,
		    const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot);

	delta_prefill_ref(&c->call, &b);
	state_case_plan_release(&b);
}

static void test_batches(void)
{
	static const int32_t row0[] = { 0, 1, 3, 33, 40 }, pos0[] = { 4, 0, 0, 1 },
			     slot[] = { 3, 0, 2, 1 };
	struct delta_case c;
	struct result all;

	make(&c);
	prefill(&c, 4, row0, pos0, slot);
	all = result_of(&c);
	ok(isfinite(bf16_to_f32(all.out[delta_case_out(&c) - 1])), "a ragged batch runs");
	delta_case_release(&c);

	make(&c);
	for (int r = 3; r >= 0; r--) {
		const int32_t at[2] = { row0[r], row0[r + 1] };

		prefill(&c, 1, at, &pos0[r], &slot[r]);
	}
	ok(same(&c, &all), "requests by themselves give the same");
	delta_case_release(&c);

	make(&c);
	for (int r = 0; r < 4; r++)
		for (int32_t i = row0[r]; i < row0[r + 1];) {
			const int32_t next = i + 1 + i % 3, end = row0[r + 1];
			const int32_t at[2] = { i, next < end ? next : end };

			prefill(&c, 1, at, &(int32_t){ pos0[r] + i - row0[r] }, &slot[r]);
			i = at[1];
		}
	ok(same(&c, &all), "and so do cuts of a few rows");
	result_free(&all);
	delta_case_release(&c);
}

static void test_decode(void)
{
	static const int32_t row0[] = { 0, 1, 2, 3 }, pos0[] = { 1, 2, 3 }, slot[] = { 2, 0, 3 };
	struct delta_case c;
	struct result all;

	make(&c);
	prefill(&c, 3, row0, pos0, slot);
	all = result_of(&c);
	delta_case_release(&c);
	make(&c);
	delta_decode_ref(&c.call, 3, slot);
	ok(same(&c, &all), "decode is prefill of one row each");
	result_free(&all);
	delta_case_release(&c);
}

/* With decay and beta 1 and equal keys, the state answers the key with the last value. */
static void test_recall(void)
{
	static const int32_t row0[] = { 0, 30 }, pos0[] = { 1 }, slot[] = { 1 };
	const int d = small.k_dim;
	struct rng rng = { 9 };
	struct delta_case c;
	bf16_t *qkvz;
	float worst = 0;

	delta_case_make(&c, &rng, &small, DELTA_REPEAT, 30, 2);
	qkvz = (bf16_t *)c.call.qkvz;
	for (int i = 0; i < small.v_heads; i++)
		((float *)c.call.w.a_log)[i] = -100;
	for (int r = 0; r < 30; r++) { /* queries are the keys; beta is 1 */
		bf16_t *row = qkvz + r * c.call.qkvz_stride;

		memcpy(row, row + small.k_heads * d, (size_t)(small.k_heads * d) * sizeof *row);
		for (int h = 0; h < small.v_heads; h++)
			((bf16_t *)c.call.ba)[r * c.call.ba_stride + h] = bf16_from_f32(100);
	}
	memcpy((bf16_t *)c.call.w.conv, c.call.w.conv + small.k_heads * d * small.conv,
	       (size_t)(small.k_heads * d * small.conv) * sizeof(bf16_t));
	prefill(&c, 1, row0, pos0, slot);
	for (int h = 0; h < small.v_heads; h++) {
		float v[8], sum = 0, o[8];

		for (int j = 0; j < d; j++) {
			int ch = 2 * small.k_heads * d + h * d + j;
			float x = 0;

			for (int i = 0; i < 4; i++)
				x += bf16_to_f32(c.call.w.conv[ch * 4 + i]) *
				     bf16_to_f32(qkvz[(26 + i) * c.call.qkvz_stride + ch]);
			v[j] = x / (1 + expf(-x));
			sum += v[j] * v[j];
		}
		bf16_widen(o, c.call.out + (29 * small.v_heads + h) * d, d);
		for (int j = 0; j < d; j++) {
			float z = bf16_to_f32(
				qkvz[29 * c.call.qkvz_stride + delta_channels(&small) + h * d + j]);
			float want = v[j] / sqrtf(sum / (float)d) * bf16_to_f32(c.call.w.norm[j]) *
				     z / (1 + expf(-z));

			worst = fmaxf(worst, fabsf(o[j] - want) - 0x1p-8f * fabsf(want));
		}
	}
	ok(worst < 1e-4f, "the state answers a repeated key with its last value: off by %g",
	   (double)worst);
	delta_case_release(&c);
}

/* ---- plan ---- */

static void test_plan(void)
{
	static const int32_t row0[] = { 0, 64, 64, 193 }, pos0[] = { 0, 9, 128 },
			     slot[] = { 5, 6, 7 };
	struct state_batch b = state_case_plan(3, row0, pos0, slot);

	ok(b.n_seq == 2 && b.n_chunk == 4 && b.n_chunk <= state_max_chunk(3, 193),
	   "a request without rows has no entry");
	ok(b.seq[0].fresh == 1 && b.seq[1].fresh == 0, "a request without a past is fresh");
	ok(b.seq[1].row == 64 && b.seq[1].n_row == 129 && b.seq[1].slot == 7 &&
		   b.seq[1].chunk0 == 1,
	   "an entry has its rows, slot and chunks");
	ok(b.chunk[0].seq == 0 && b.chunk[1].seq == 1 && b.chunk[1].first == 0 &&
		   b.chunk[3].seq == 1 && b.chunk[3].first == 128,
	   "chunks begin every 64 rows of their own sequence");
	state_case_plan_release(&b);
}

/* ---- how clusters share the chunks ---- */

enum { WALK_SEQ = 5, WALK_HEADS = 40, WALK_CHUNKS = 12 };

/* Check the clusters of a random batch.  Return the error's text, or NULL. */
static const char *walk_case(struct rng *rng)
{
	static unsigned char made[WALK_SEQ][WALK_HEADS][WALK_CHUNKS];
	int32_t row0[WALK_SEQ + 1] = { 0 }, pos0[WALK_SEQ] = { 0 }, slot[WALK_SEQ];
	int n_seq = 1 + (int)rng_below(rng, WALK_SEQ), n_cluster = 1 + (int)rng_below(rng, 64);
	int heads = 1 + (int)rng_below(rng, WALK_HEADS), longest = 0, all = 0, most;
	struct delta_piece before = { .waits = 0 };
	const char *wrong = NULL;
	struct state_batch b;

	memset(made, 0, sizeof made);
	for (int i = 0; i < n_seq; i++) {
		int n = 1 + (int)rng_below(rng, WALK_CHUNKS * STATE_CHUNK);

		slot[i] = i;
		row0[i + 1] = row0[i] + n;
		longest = n > longest ? n : longest;
	}
	b = state_case_plan(n_seq, row0, pos0, slot);
	most = (b.n_chunk * heads + n_cluster - 1) / n_cluster;
	if (most < delta_count_chunks(longest))
		most = delta_count_chunks(longest);
	for (int c = 0; c < n_cluster; c++) {
		struct delta_walk k = delta_walk_of(&b, heads, longest, c, n_cluster);
		int done = 0, begins;

		for (; delta_next_piece(&k, &b); done += k.p.n) {
			begins = done;
			if (k.p.signals && (done || k.p.first))
				wrong = "a piece that signals is not the first of all";
			if (k.p.waits != (k.p.first > 0))
				wrong = "a piece waits for nothing, or not at all";
			if (before.waits && (!k.p.signals || k.p.seq.slot != before.seq.slot ||
					     k.p.head != before.head || k.p.n != before.first))
				wrong = "the next cluster does not make the chunks before";
			if (!before.waits && k.p.signals && !done)
				wrong = "a piece signals to nobody";
			for (int i = 0; i < k.p.n; i++)
				made[k.p.seq.slot][k.p.head][k.p.first + i]++;
			before = k.p.waits ? k.p : (struct delta_piece){ .waits = 0 };
			if (k.p.waits && begins < k.p.first)
				wrong = "a piece begins before the chunks before it can be made";
		}
		all += done;
		if (done > most)
			wrong = "a cluster makes too many chunks";
	}
	if (all != b.n_chunk * heads || before.waits)
		wrong = "some chunks are not made";
	for (int i = 0; i < n_seq; i++)
		for (int h = 0; h < heads; h++)
			for (int j = 0; j < delta_count_chunks(b.seq[i].n_row); j++)
				if (made[i][h][j] != 1)
					wrong = "a chunk is not made once";
	state_case_plan_release(&b);
	return wrong;
}

static void test_walk(void)
{
	struct rng rng = { 71 };
	const char *wrong = NULL;

	for (int i = 0; i < 2000 && !wrong; i++)
		wrong = walk_case(&rng);
	ok(!wrong, "clusters share the chunks of random batches%s%s", wrong ? ": " : "",
	   wrong ? wrong : "");
}

/* ---- refusals ---- */

static void refused(struct delta_spec s, int cc, const char *message)
{
	struct ar_err err = { 0 };

	ok(delta_supported(&s, cc, &err) == AR_USAGE, "refused: %s", message);
	is_str(err.msg, message, "the message");
}

static void test_refusals(void)
{
	static const struct delta_spec next = { 16, 32, 128, 128, 4 }, half = { 1, 1, 64, 64, 4 };
	struct ar_err err;

	ok(!delta_supported(&next, 90, &err) && !delta_supported(&next, 80, &err) &&
		   !delta_supported(&half, 89, &err),
	   "Qwen3-Next passes, and small heads everywhere");
	refused(next, 89, "delta: head size 128; supported 64 on compute capability 8.9");
	refused((struct delta_spec){ 1, 1, 96, 96, 4 }, 0,
		"delta: head size 96; supported 64, 128");
	refused((struct delta_spec){ 1, 1, 64, 128, 4 }, 90,
		"delta: value heads of 128 channels; supported 64, as key heads have");
	refused((struct delta_spec){ 1, 1, 128, 128, 3 }, 90,
		"delta: convolution of width 3; supported 4");
	refused((struct delta_spec){ 2, 3, 128, 128, 4 }, 90,
		"delta: 3 value heads; supported multiples of the 2 key heads");
	/* bf16 q, k and v, two tiles of 64 x 64 and gates, for 64 + 4 chunks; flags */
	is_int((long long)delta_work_bytes(&next, 4, 4096),
	       68 * (64 * 128 * 2 * (16 + 16 + 32) + 32 * (2 * 64 * 64 * 2 + 2 * 64 * 4)) +
		       2 * DELTA_CLUSTERS * 4,
	       "bytes of work");
}

int main(void)
{
	plan(0);
	for (int cut = 0; cut < ROWS; cut++) {
		test_worked(true, cut);
		test_worked(false, cut);
	}
	test_batches();
	test_decode();
	test_recall();
	test_plan();
	test_walk();
	test_refusals();
	return done_testing();
}
