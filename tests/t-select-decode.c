/* SPDX-License-Identifier: Apache-2.0 */
/* Worked examples of selectors of decodes: the row at position 38 of the example. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/pieces.h"
#include "tests/batch_case.h"
#include "tests/decode_case.h"
#include "tests/tap.h"

/* The tokens that query head h sees. */
static void tokens_of(const struct piece_lists *l, int h, char seen[39])
{
	size_t at = (size_t)(h / l->heads) * (size_t)l->stride;

	memset(seen, 0, 39);
	for (int i = 0; i < l->n[h / l->heads]; i++)
		for (int t = l->piece[at + (size_t)i] * l->tok;
		     t < (l->piece[at + (size_t)i] + 1) * l->tok && t < 39; t++)
			seen[t] = !l->mask || l->mask[at + (size_t)i] >> h % l->heads & 1;
}

static double logit(const struct batch_case *c, int h, int t)
{
	const bf16_t *q = c->q + h * 4, *k = c->kv.k + pieces_key(&c->b, 0, h / 2, t);

	return 0.5 * (double)bf16_dot(q, k, 4);
}

/* The share of head h's attention on these tokens, of this row of the example. */
static double recall(const struct batch_case *c, int h, const char seen[39])
{
	double sum = 0, all = 0;

	for (int t = 0; t < 39; t++) {
		all += exp(logit(c, h, t));
		sum += seen[t] ? exp(logit(c, h, t)) : 0;
	}
	return sum / all;
}

static const struct {
	const char *part;
	const char *head[4]; /* tokens, "a-b c": of each query head */
	double recall[4];    /* 0: not stated */
} vector[] = {
	{ "streaming,sink=4,recent=12",
	  { "0-3 27-38", "0-3 27-38", "0-3 27-38", "0-3 27-38" },
	  { .5511, .4227, .5766, .4278 } },
	{ "streaming,sink=4,recent=12,page=4",
	  { "0-3 28-38", "0-3 28-38", "0-3 28-38", "0-3 28-38" },
	  { 0 } },
	{ "topk,budget=5",
	  { "0 1 5 6 32", "5 6 20 28 32", "6 19 28 32 36", "3 4 7 12 24" },
	  { 0 } },
	{ "rocket,topr=2,budget=12,meta-dtype=bf16",
	  { "4-7 20-27", "4-7 20-27", "0-7 28-31", "0-7 28-31" },
	  { 0 } },
	{ "topk,budget=39", { "0-38", "0-38", "0-38", "0-38" }, { 1, 1, 1, 1 } },
};

/* Whether the tokens are those of the text. */
static bool is_text(const char seen[39], const char *text)
{
	char want[39] = { 0 }, *end;

	while (*text) {
		long a = strtol(text, &end, 10), b = *end == '-' ? strtol(end + 1, &end, 10) : a;

		memset(want + a, 1, (size_t)(b - a + 1));
		text = end + strspn(end, " ");
	}
	return !memcmp(seen, want, sizeof want);
}

static void test_vectors(void)
{
	struct batch_case c;

	case_decode_example(&c);
	for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
		struct decode_case x;
		bool same = true, near = true;

		decode_choose(&x, vector[i].part, &c);
		for (int h = 0; h < 4; h++) {
			char seen[39];

			tokens_of(&x.sel.chosen.pieces, h, seen);
			same &= is_text(seen, vector[i].head[h]);
			near &= !(vector[i].recall[h] > 0) ||
				fabs(recall(&c, h, seen) - vector[i].recall[h]) < 5e-5;
		}
		ok(same, "%s: the tokens of each head", vector[i].part);
		ok(near, "... and their share of the attention");
		decode_release(&x);
	}
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_vectors();
	return done_testing();
}
