/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a tensor-parallel group in the reference decoder. */
#include "config.h"

#include <string.h>

#include "replay/forward/decoder_ref.h"
#include "tests/rank_case.h"
#include "tests/tap.h"

static bool run(const struct weights *w, enum rank_part part, const struct layer_row *row,
		const bf16_t *attn, struct rank_out *out)
{
	static const int32_t all[RANK_ROWS] = { 0, 1, 2, 3, 4 };
	struct ar_err err = { 0 };
	struct decoder_ref *d;
	enum ar_status st = decoder_ref_open(&d, w, NULL, NULL, &err);

	if (!st)
		st = decoder_ref_room(d, RANK_ROWS, &err);
	if (!st)
		st = decoder_ref_begin(d, row, RANK_ROWS, &err);
	if (!st && part == RANK_PROJECT)
		st = decoder_ref_project(d, RANK_LAYER, attn, &err);
	if (!st && part == RANK_MLP)
		st = decoder_ref_mlp(d, RANK_LAYER, &err);
	if (!st)
		st = decoder_ref_end(d, &err);
	if (!st)
		st = decoder_ref_logits(d, all, RANK_ROWS, out->logit, &err);
	if (st)
		bail_out("%s", err.msg);
	memcpy(out->x, decoder_ref_hidden(d), sizeof out->x);
	decoder_ref_close(d);
	return true;
}

int main(void)
{
	static const int tps[TINY_MODELS] = { 6, 4, 4, 4, 4 };

	plan(0);
	for (int i = 0; i < TINY_MODELS; i++) {
		rank_case(&tiny_models[i], 2, run);
		rank_case(&tiny_models[i], tps[i], run);
	}
	return done_testing();
}
