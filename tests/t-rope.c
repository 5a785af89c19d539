/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE: the angles of each type, and its parameters in JSON. */
#include "config.h"
#include "model/rope.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

/* Angles that the published formulas give, worked out outside of this program. */
static void test_angles(void)
{
	static const struct {
		const char *what;
		struct rope r;
		int dim, n, pair[9];
		float want[9];
	} cases[] = {
		{ "default: theta^(-2k/D)",
		  { .theta = 10000 },
		  128,
		  3,
		  { 0, 16, 32 },
		  { 1, 0.1f, 0.01f } },
		/* pairs kept (0 to 28), interpolated (29 to 34) and slowed (35 on) */
		{ "Llama 3.1",
		  { .theta = 500000,
		    .type = ROPE_LLAMA3,
		    .factor = 8,
		    .low_freq = 1,
		    .high_freq = 4,
		    .original_len = 8192 },
		  128,
		  9,
		  { 0, 1, 20, 28, 29, 32, 34, 35, 63 },
		  { 1.0f, 0.814617234f, 0.0165604401f, 0.00321144599f, 0.00216657076f,
		    0.000524846161f, 0.000178507813f, 9.55621235e-05f, 3.06892599e-07f } },
		/* pairs kept (0 to 34) and slowed (35 on); nothing is in between */
		{ "equal factors: Llama 4 Scout",
		  { .theta = 500000,
		    .type = ROPE_LLAMA3,
		    .factor = 16,
		    .low_freq = 1,
		    .high_freq = 1,
		    .original_len = 8192 },
		  128,
		  4,
		  { 0, 34, 35, 63 },
		  { 1.0f, 0.00093847387f, 4.77810618e-05f, 1.53446299e-07f } },
		{ "linear: Gemma 3, full layers",
		  { .theta = 1e6, .type = ROPE_LINEAR, .factor = 8 },
		  256,
		  4,
		  { 0, 1, 64, 127 },
		  { 0.125f, 0.112210892f, 0.000125f, 1.39246732e-07f } },
		{ "a quarter of a head of 256: Qwen3-Next",
		  { .theta = 1e7, .share = 0.25 },
		  64,
		  4,
		  { 0, 1, 16, 31 },
		  { 1, 0.60429639f, 0.000316227766f, 1.6548171e-07f } },
		/* The ramp goes from pair 8.09 to pair 17.40. */
		{ "yarn, not truncated: gpt-oss",
		  { .theta = 150000,
		    .type = ROPE_YARN,
		    .factor = 32,
		    .original_len = 4096,
		    .beta_fast = 32,
		    .beta_slow = 1 },
		  64,
		  8,
		  { 0, 1, 8, 9, 12, 17, 18, 31 },
		  { 1, 0.689044306f, 0.0508132748f, 0.0317056962f, 0.00679495949f, 0.000129318701f,
		    3.83088124e-05f, 3.02351143e-07f } },
		/* From pair 23 to pair 40. */
		{ "yarn, truncated: Qwen3 with a factor of 4",
		  { .theta = 1e6,
		    .type = ROPE_YARN,
		    .factor = 4,
		    .original_len = 32768,
		    .beta_fast = 32,
		    .beta_slow = 1,
		    .truncate = 1 },
		  128,
		  8,
		  { 0, 23, 24, 30, 39, 40, 41, 63 },
		  { 1, 0.00697830585f, 0.00537532149f, 0.00106436098f, 6.49039432e-05f,
		    4.44569853e-05f, 3.58253143e-05f, 3.1023444e-07f } },
		{ "what is not known turns nothing",
		  { .type = ROPE_LLAMA3,
		    .factor = 8,
		    .low_freq = 1,
		    .high_freq = 4,
		    .original_len = 8192 },
		  128,
		  3,
		  { 0, 30, 63 },
		  { 0, 0, 0 } },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		float inv[128], got[9];
		bool falls = true;

		rope_inv_freq(&cases[i].r, cases[i].dim, inv);
		for (int k = 0; k < cases[i].n; k++)
			got[k] = inv[cases[i].pair[k]];
		is_f32(got, cases[i].want, (size_t)cases[i].n, 0, 1e-6, "%s", cases[i].what);
		for (int k = 1; k < cases[i].dim / 2; k++)
			falls = falls && (inv[k] < inv[k - 1] || !(cases[i].r.theta > 0));
		ok(falls, "... they fall from pair to pair");
	}
}

/* A ramp without length is a step. */
static void test_step(void)
{
	const struct rope r = { .theta = 10000,
				.type = ROPE_YARN,
				.factor = 2,
				.original_len = 6,
				.beta_fast = 32,
				.beta_slow = 1,
				.truncate = 1 };
	float inv[8];

	rope_inv_freq(&r, 16, inv);
	ok(inv[0] == 1 && fabsf(inv[1] - 0.5f * powf(10, -0.5f)) < 1e-7f,
	   "where nothing turns often, all pairs but the first are slowed: %g, %g", (double)inv[0],
	   (double)inv[1]);
}

static void test_factor(void)
{
	static const struct {
		struct rope r;
		double want;
	} cases[] = {
		{ { .theta = 1e6 }, 1 },
		{ { .type = ROPE_LINEAR, .factor = 8 }, 1 },
		{ { .type = ROPE_YARN, .factor = 32 }, 1.3465735902799727 },
		{ { .type = ROPE_YARN, .factor = 4 }, 1.138629436111989 },
		{ { .type = ROPE_YARN, .factor = 0.5 }, 1 },
		{ { .type = ROPE_YARN, .factor = 32, .attention_factor = 1.25 }, 1.25 },
		{ { .type = ROPE_YARN, .factor = 40, .mscale = 0.707, .mscale_all_dim = 1 },
		  0.9210423553163399 },
		{ { .type = ROPE_YARN, .factor = 40, .mscale = 1, .mscale_all_dim = 1 }, 1 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(fabs(rope_attention_factor(&cases[i].r) - cases[i].want) < 1e-12,
		   "attention factor %zu is %.4f", i, cases[i].want);
	ok(!rope_besides_angles(&cases[0].r) && !rope_besides_angles(&cases[7].r),
	   "angles are all there is");
	is_str(rope_besides_angles(&cases[2].r), "the attention factor of rope type 'yarn'",
	       "or there is a factor");
	is_str(rope_besides_angles(&(struct rope){ .share = 0.5 }), "partial rotary embeddings",
	       "or some channels do not turn");
	is_int(rope_dim(&(struct rope){ .share = 0.25 }, 256), 64, "a quarter of a head");
	is_int(rope_dim(&(struct rope){ 0 }, 256), 256, "a whole one");
}

static enum ar_status parse(struct rope *r, const char *text, struct ar_err *err)
{
	cJSON *o = cJSON_Parse(text);
	enum ar_status st = rope_parse(r, 1e6, o, "f", err);

	cJSON_Delete(o);
	return st;
}

#define YARN "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32768"

static const char *const good[] = {
	"{\"rope_type\":\"default\"}",
	"{\"type\":\"linear\",\"factor\":8}",
	"{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
	"\"original_max_position_embeddings\":8192,\"partial_rotary_factor\":0.5}",
	YARN "}",
	YARN ",\"beta_fast\":24,\"beta_slow\":2,\"truncate\":false,\"mscale\":0.7,"
	     "\"mscale_all_dim\":0.8,\"attention_factor\":1.5}",
	"{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}",
};
enum { N_GOOD = sizeof good / sizeof *good };

/* A RoPE that is written is read as the same. */
static void test_json(void)
{
	struct ar_err err = { 0 };
	struct rope r[N_GOOD], again;

	for (int i = 0; i < N_GOOD; i++) {
		char *text;
		cJSON *o;

		is_int(parse(&r[i], good[i], &err), AR_OK, "read: %s", good[i]);
		o = rope_scaling_json(&r[i]);
		text = cJSON_PrintUnformatted(o);
		ok(parse(&again, text, &err) == AR_OK && rope_equal(&r[i], &again),
		   "... and written: %s", text);
		is_int(rope_is_scaled(&r[i]), i > 0, "... %s", i ? "scaled" : "not scaled");
		cJSON_free(text);
		cJSON_Delete(o);
		for (int j = 0; j < i; j++)
			ok(!rope_equal(&r[i], &r[j]), "... it is not number %d", j);
	}
	ok(r[3].beta_fast == 32 && r[3].beta_slow == 1 && r[3].truncate &&
		   r[3].attention_factor == 0 && r[4].attention_factor == 1.5 && !r[4].truncate &&
		   r[4].beta_fast == 24,
	   "yarn has defaults");
	again = r[3];
	again.theta++;
	ok(!rope_equal(&again, &r[3]), "another base is another RoPE");
	ok(rope_parse(&again, 5, NULL, "f", &err) == AR_OK && again.theta == 5 &&
		   !rope_is_scaled(&again),
	   "no scaling at all");
	ok(parse(&again, "{\"rope_type\":\"default\",\"partial_rotary_factor\":1}", &err) ==
			   AR_OK &&
		   !rope_is_scaled(&again),
	   "a whole head is no share");
}

static void test_refused(void)
{
	static const struct {
		const char *text, *wrong;
	} cases[] = {
		{ "[]", "f: rope scaling is no object" },
		{ "{\"factor\":4}", "no 'rope_type'" },
		{ "{\"rope_type\":\"longrope\"}",
		  "unknown rope type 'longrope'; known are default, linear, llama3 and yarn" },
		{ "{\"rope_type\":\"linear\"}",
		  "linear rope scaling: want a positive number as 'factor'" },
		{ "{\"rope_type\":\"yarn\",\"factor\":4}",
		  "yarn rope scaling: want a positive number as "
		  "'original_max_position_embeddings'" },
		{ YARN ",\"beta_fast\":0}", "as 'beta_fast'" },
		{ YARN ",\"mscale\":\"1\"}", "as 'mscale'" },
		{ YARN ",\"beta_slow\":40}", "beta_fast must not be below beta_slow" },
		{ YARN ",\"rope_theta\":1}", "rope_theta above 1" },
		{ YARN ",\"truncate\":1}", "want true or false as 'truncate'" },
		{ YARN ",\"partial_rotary_factor\":2}", "as 'partial_rotary_factor'" },
	};
	struct ar_err err = { 0 };
	struct rope r = { .theta = 7 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(parse(&r, cases[i].text, &err) == AR_DATA && strstr(err.msg, cases[i].wrong) &&
			   r.theta == 7,
		   "refused: %s (%s)", cases[i].wrong, err.msg);
	is_int(rope_check_dim(&(struct rope){ .share = 0.3 }, 64, "f", &err), AR_DATA,
	       "19 channels are not pairs: %s", err.msg);
}

static void *hooked_malloc(size_t n)
{
	return malloc(n);
}

static void test_faults(void)
{
	const struct rope r = { .type = ROPE_YARN, .factor = 4, .share = 0.5 };
	cJSON_Hooks hooks = { hooked_malloc, free };
	int bad = 0;
	long k = 0;

	cJSON_InitHooks(&hooks);
	for (;; k++) {
		cJSON *o;

		fault_arm(k);
		o = rope_scaling_json(&r);
		if (!fault_disarm()) {
			cJSON_Delete(o);
			break;
		}
		bad += o != NULL;
	}
	cJSON_InitHooks(NULL);
	ok(!bad && k > 5, "each of %ld allocations of the JSON fails cleanly", k);
}

int main(void)
{
	plan(0);
	test_angles();
	test_step();
	test_factor();
	test_json();
	test_refused();
	test_faults();
	return done_testing();
}
