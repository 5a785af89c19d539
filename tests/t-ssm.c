/* SPDX-License-Identifier: Apache-2.0 */
/* The references of a Mamba-2 layer and its refusals. */
#include "config.h"
#include "kernels/ssm/ssm.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ssm/ssm_work.h"
#include "tests/ssm_case.h"
#include "tests/state_case.h"
#include "tests/tap.h"

/* ---- worked example ---- */

/* Four heads of 2 channels in two groups, states of 3, four rows; the convolution is 3 wide.
 * Results by numpy in double, in the dual form of the paper, all rows at once: with
 * L_ij = exp(a_(j+1) + ... + a_i), y = (L * C B^T) (dt x) + exp(a_1 + ... + a_i) C h + d x. */
static const float worked_in[] = {
	1.25f,	 1.25f,	  0,	   -0.875f, -1.75f,  -0.5f,  -0.375f, -1.875f, -1.75f,	2,
	0.625f,	 -1,	  -0.25f,  1.875f,  1.625f,  1.375f, -0.375f, -0,      0.75f,	-1.75f,
	0.25f,	 -0.875f, 1.5f,	   -1.75f,  0.75f,   1.5f,   -1.125f, 1.625f,  1.5f,	-1.875f,
	0.875f,	 -2,	  0,	   -0.25f,  -1.125f, -0.75f, 1.25f,   -0.75f,  -1.375f, 0.75f,
	-0.25f,	 1.25f,	  -1,	   -0.75f,  1.25f,   0,	     0,	      -1,      -2,	1.75f,
	-1.625f, 1.375f,  -0.5f,   1.75f,   -0.375f, 1.75f,  0.25f,   -1,      1,	0.75f,
	0.75f,	 -0.125f, -1.125f, 0.625f,  -1.625f, 0.75f,  0.5f,    -0.5f,   1.25f,	-1.25f,
	-0.5f,	 1.25f,	  -0.5f,   0.875f,  0.5f,    1.75f,  2,	      0.875f,  1.25f,	-1.375f,
	0.875f,	 1.375f,  -0.375f, 0.25f,   -0.125f, 1.875f, -0.75f,  -0.375f, -2,	-0.375f,
	0.5f,	 1.75f,	  1.75f,   -0.75f,  2,	     -1.25f, 1.25f,   -1.375f, -0.375f, -1.75f,
	1.375f,	 1.375f,  -1.5f,   0.125f,  -1,	     -0,     0.25f,   -1.625f, 1.5f,	-0.875f,
	-0.25f,	 -1.75f,  -2,	   -1.25f,  -0.625f, 1.75f,  1.5f,    -0.125f, -0.125f, 0.625f,
	1.375f,	 -0.625f, 1.125f,  -0.375f, 0.375f,  1,	     0,	      0.75f
};
static const float worked_conv[] = {
	0.75f,	 -2,	  -1.875f, -1.375f, -1.125f, -1.125f, -1.75f, -1.125f, 0.375f,	1.5f,
	-0.625f, -0.5f,	  -0.375f, 0.75f,   1.125f,  1.75f,   -0.5f,  0.875f,  -0.625f, 1.25f,
	-1.125f, 1.5f,	  0,	   0.875f,  0.125f,  -0.75f,  -0,     -1.75f,  -1.875f, 0.125f,
	-0.125f, 1.375f,  -1.875f, 0.25f,   -0,	     0.375f,  0.875f, 0.125f,  0.25f,	-0,
	0.5f,	 -1,	  0.25f,   0.75f,   -1.25f,  2,	      1,      1.875f,  -0.875f, -0.25f,
	-1,	 -1.875f, -1.875f, -1,	    1.5f,    -1.375f, 0.75f,  -1,      -1.75f,	-1.25f
};
static const float worked_bias[] = { 0.75f,  0,	     0.25f, -0.125f, -0.875f, -0,      1.75f,
				     -1.25f, 0.875f, -1,    -1.25f,  -0.75f,  -1.625f, 1.75f,
				     -0.5f,  -1.25f, -2,    -1.75f,  -1.125f, -0.375f };
static const float worked_norm[] = { 0.375f, 1.875f, 1.5f, -1, 0.5f, 1.625f, -1.625f, 1.375f };
static const float worked_tail[] = { -0.375f, 1.125f,  -0.75f,	0.5f,	 0,	  -1.625f, 1,
				     1.25f,   -0.125f, -0.5f,	1.75f,	 -0.5f,	  1.5f,	   -0.375f,
				     -0.5f,   -0.5f,   -1.75f,	-0.875f, -1.125f, -1.75f,  0.125f,
				     -0.25f,  -1.875f, -1.375f, 1.625f,	 -1.5f,	  -0.5f,   1.75f,
				     -1.5f,   -0.375f, 1.25f,	-1.875f, -1.75f,  1.75f,   0.75f,
				     -1,      -0.125f, -1,	1.625f,	 1.75f };
static const float worked_state[] = { -1.75f,  0.125f,	-1.25f, -0.375f, 1,	0.875f,
				      -1.25f,  -0.625f, -0.25f, -0.5f,	 0.75f, 1.125f,
				      -0.625f, -0.25f,	-1.75f, -0.5f,	 1.75f, 0,
				      0.25f,   0.375f,	0.25f,	1.25f,	 -1,	-0.75f };
static const float worked_out_fresh[] = { 0.74887294f,	  -0.20280619f,	  -0,
					  -0.0173085861f, -0.261716994f,  3.07739427f,
					  -0.399500862f,  0.336411612f,	  0,
					  1.15702227f,	  -1.31104706f,	  -1.68119406f,
					  0.0506083453f,  0.169409787f,	  3.22109883f,
					  -0.306450784f,  -0.734718709f,  -0.653691366f,
					  -0.280191499f,  0.0371258141f,  0.831307588f,
					  -1.39903707f,	  -0.290729563f,  -0.934879215f,
					  -0.748491195f,  0.00945972201f, 0.183360354f,
					  0.0322947015f,  -0.173621125f,  -1.34801612f,
					  2.9028835f,	  -0.00942364343f };
static const float worked_state_fresh[] = {
	4.27559256f,	 -1.04257906f,	  5.51083481f,	   -0.15132957f,  0.0358373748f,
	-0.0797861493f,	 0.000997186896f, -0.00741984816f, -0.234172793f, 0.0107837873f,
	-0.00629122447f, 0.136976019f,	  0.0523198784f,   -0.790587037f, 5.96645429f,
	-0.50876628f,	 -0.358500902f,	  0.0118441753f,   0.10408645f,	  -0.286240288f,
	2.29203232f,	 0.00169362379f,  0.00977490473f,  -0.0416917082f
};
static const float worked_out_on[] = { 0.740668296f,   -0.25418822f,	-0,
				       -0.283727086f,  -0.00193237717f, -0.0164959149f,
				       -0.32743915f,   -2.73588355f,	0,
				       0.911216951f,   2.90235287f,	-0.133325575f,
				       -0.0424424948f, -0.284519913f,	3.20643178f,
				       -0.3602225f,    -0.694563022f,	-0.908819863f,
				       -0.86529809f,   0.0141882486f,	0.824978179f,
				       -1.37539636f,   -0.29073224f,	-1.00012388f,
				       0.747746381f,   -0.137850598f,	0.174781962f,
				       0.0705832881f,  -0.18108585f,	-1.27937561f,
				       2.92903019f,    -0.00331884589f };
static const float worked_state_on[] = {
	4.90068696f,   0.26047127f,    4.96012426f,  -0.219921054f,  0.132130309f,   0.0151835202f,
	0.0902436408f, -0.0394359098f, 0.103090541f, -0.0339802985f, 0.0488814554f,  0.0601217115f,
	0.0456013235f, -0.793700273f,  5.99369394f,  -0.492010723f,  -0.328906969f,  -0.178677714f,
	0.091274738f,  -0.22713144f,   2.29532299f,  0.087960512f,   -0.0794969673f, -0.0239370949f
};
static const float worked_out_plain[] = { 1.98873075f,	  -0.13650157f,	   -0,
					  0.285682935f,	  -0.00157780386f, -0.00414432841f,
					  0.0822637229f,  -0.812317915f,   0,
					  0.0655296107f,  0.260901168f,	   0.0179775513f,
					  -0.096711883f,  -0.19948408f,	   -2.24811011f,
					  -0.298481266f,  -0.296527824f,   -0.077599978f,
					  -0.0923548156f, -0.0022715058f,  0.759820299f,
					  -0.389774066f,  0.0823907134f,   -0.334957367f,
					  2.04489234f,	  -0.0753971236f,  0.119495829f,
					  -0.0723851173f, -0.375223127f,   -0.815679957f,
					  -1.86743533f,	  -0.00250068781f };
static const float worked_a_log[] = { -1, 0.5f, 0, 1.25f };
static const float worked_dt_bias[] = { 0.25f, -0.5f, 1, -2 };
static const float worked_d[] = { 1, -0.5f, 0.25f, 2 };
enum { ROWS = 4, IN = 32, CHANNELS = 20, INNER = 8, STATE = 24 };
static const struct ssm_spec worked = { 4, 2, 2, 3, 3, 1, 1, 128, 4, 0.125f, 1.5f };

static void narrow(bf16_t *to, const float *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = bf16_from_f32(from[i]);
}

/* Run the rows [0, cut), then the others. */
static void test_worked(bool fresh, bool normed, int cut)
{
	bf16_t in[ROWS * IN], conv[CHANNELS * 3], bias[CHANNELS], norm[INNER], tail[2 * CHANNELS];
	bf16_t out[ROWS * INNER], last[2 * CHANNELS];
	float state[STATE], got[ROWS * INNER];
	struct ssm_call c = { .spec = worked,
			      .w = { conv, bias, worked_a_log, worked_dt_bias, worked_d,
				     normed ? norm : NULL, 1e-5f },
			      .state = { state, tail },
			      .in = in,
			      .in_stride = IN,
			      .out = out };
	const struct state_seq seq[2] = { { 0, cut, 0, fresh, 0 },
					  { cut, ROWS - cut, 0, fresh && !cut, 0 } };

	narrow(in, worked_in, ROWS * IN);
	narrow(conv, worked_conv, CHANNELS * 3);
	narrow(bias, worked_bias, CHANNELS);
	narrow(norm, worked_norm, INNER);
	narrow(tail, worked_tail, 2 * CHANNELS);
	memcpy(state, worked_state, sizeof state);
	memset(out, 0xff, sizeof out);
	for (int i = 0; i < 2; i++)
		if (seq[i].n_row)
			ssm_prefill_ref(&c, &(struct state_batch){ 1, 1, &seq[i], NULL });
	bf16_widen(got, out, ROWS * INNER);
	is_f32(got,
	       !normed ? worked_out_plain :
	       fresh   ? worked_out_fresh :
			 worked_out_on,
	       ROWS * INNER, 1e-6, 0x1p-8, "the worked example, %s, cut at row %d%s",
	       fresh ? "fresh" : "continued", cut, normed ? "" : ", without a norm");
	is_f32(state, fresh ? worked_state_fresh : worked_state_on, STATE, 4e-6, 1e-6, "its state");
	for (int i = 0; i < 2; i++)
		memcpy(last + i * CHANNELS, in + (i + 2) * IN + INNER, CHANNELS * sizeof *last);
	ok(!memcmp(tail, last, sizeof tail), "its last rows");
}

/* ---- batches ---- */

static const struct ssm_spec small = { 4, 8, 2, 16, 4, 1, 1, 128, 4, 0, 0 };

/* The case's results as bytes, to be compared. */
struct result {
	bf16_t *out, *tail;
	float *state;
};

static void *copy(const void *from, size_t bytes)
{
	return memcpy(state_case_array(bytes, 1), from, bytes);
}

static struct result result_of(const struct ssm_case *c)
{
	return (struct result){ copy(c->call.out, ssm_case_out(c) * sizeof(bf16_t)),
				copy(c->call.state.tail, ssm_case_tail(c) * sizeof(bf16_t)),
				copy(c->call.state.h, ssm_case_state(c) * sizeof(float)) };
}

static bool same(const struct ssm_case *c, const struct result *r)
{
	return !memcmp(r->out, c->call.out, ssm_case_out(c) * sizeof(bf16_t)) &&
	       !memcmp(r->tail, c->call.state.tail, ssm_case_tail(c) * sizeof(bf16_t)) &&
	       !memcmp(r->state, c->call.state.h, ssm_case_state(c) * sizeof(float));
}

static void result_free(struct result *r)
{
	free(r->out);
	free(r->tail);
	free(r->state);
}

/* The same case again, for the same seed. */
static void make(struct ssm_case *c, enum ssm_fill fill)
{
	struct rng rng = { 7 };

	ssm_case_make(c, &rng, &small, fill, 40, 4);
}

static void prefill(const struct ssm_case *c, int n_req, const int32_t *row0, const int32_t *pos0,
		    const int32_t *slot)
{
	struct state_batch b = state_case_plan(n_req, row0, pos0, slot);

	ssm_prefill_ref(&c->call, &b);
	state_case_plan_release(&b);
}

static void test_batches(enum ssm_fill fill)
{
	static const int32_t row0[] = { 0, 1, 3, 33, 40 }, pos0[] = { 4, 0, 0, 1 },
			     slot[] = { 3, 0, 2, 1 };
	struct ssm_case c;
	struct result all;

	make(&c, fill);
	prefill(&c, 4, row0, pos0, slot);
	all = result_of(&c);
	ok(isfinite(bf16_to_f32(all.out[ssm_case_out(&c) - 1])), "a ragged batch runs");
	ssm_case_release(&c);

	make(&c, fill);
	for (int r = 0; r < 4; r++)
		for (int32_t i = row0[r]; i < row0[r + 1];) {
			const int32_t next = i + 1 + i % 3, end = row0[r + 1];
			const int32_t at[2] = { i, next < end ? next : end };

			prefill(&c, 1, at, &(int32_t){ pos0[r] + i - row0[r] }, &slot[r]);
			i = at[1];
		}
	ok(same(&c, &all), "cuts of a few rows give the same");
	result_free(&all);
	ssm_case_release(&c);
}

static void test_decode(enum ssm_fill fill)
{
	static const int32_t row0[] = { 0, 1, 2, 3 }, pos0[] = { 1, 2, 3 }, slot[] = { 2, 0, 3 };
	struct ssm_case c;
	struct result all;

	make(&c, fill);
	prefill(&c, 3, row0, pos0, slot);
	all = result_of(&c);
	ssm_case_release(&c);
	make(&c, fill);
	ssm_decode_ref(&c.call, 3, slot);
	ok(same(&c, &all), "a decode is a prefill of one row");
	result_free(&all);
	ssm_case_release(&c);
}

/* ---- refusals ---- */

static void refused(struct ssm_spec s, int cc, const char *message)
{
	struct ar_err err = { 0 };

	ok(ssm_supported(&s, cc, &err) == AR_USAGE, "refused: %s", message);
	is_str(err.msg, message, "the message");
}

static void test_refusals(void)
{
	static const struct ssm_spec nano = { 64, 64, 8, 128, 4, 1, 1, 128, 4, 0, 0 };
	static const struct ssm_spec falcon = { 32, 128, 2, 256, 4, 1, 0, 128, 4, 0, 0 };
	struct ar_err err;

	ok(!ssm_supported(&nano, 90, &err) && !ssm_supported(&nano, 86, &err) &&
		   !ssm_supported(&falcon, 89, &err),
	   "the sizes of Nemotron 3 Nano and Falcon-H1 pass");
	refused((struct ssm_spec){ 4, 64, 1, 96, 4, 1, 1, 128, 4, 0, 0 }, 0,
		"ssm: state of 96 channels; supported 128, 256");
	refused((struct ssm_spec){ 4, 96, 1, 128, 4, 1, 1, 128, 4, 0, 0 }, 0,
		"ssm: head size 96; supported 64, 128");
	refused((struct ssm_spec){ 4, 64, 1, 128, 3, 1, 1, 128, 4, 0, 0 }, 90,
		"ssm: convolution of width 3; supported 4");
	refused(nano, 75, "ssm: compute capability 7.5; supported 8.0 and later");
	/* rows in bf16 of 64 + 4 chunks; states of 8 segments are more for few rows */
	is_int((long long)ssm_work_bytes(&nano, 4, 4096), 68 * 64 * 6144 * 2, "bytes of work");
	is_int((long long)ssm_work_bytes(&nano, 1, 64), 8 * (2 * 64 * 64 * 128 * 4 + 64 * 4),
	       "bytes of work for few rows");
}

int main(void)
{
	plan(0);
	for (int cut = 0; cut < ROWS; cut++) {
		test_worked(true, true, cut);
		test_worked(false, true, cut);
	}
	test_worked(false, false, 1);
	for (int fill = 0; fill < SSM_FILLS; fill++) {
		test_batches(fill);
		test_decode(fill);
	}
	test_refusals();
	return done_testing();
}
