/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/state/state.h"

#include <math.h>

struct state_batch state_plan(const struct attn_rows *rows, const int32_t *slot,
			      struct state_seq *seq, struct state_chunk *chunk)
{
	struct state_batch b = { 0, 0, seq, chunk };

	for (int r = 0; r < rows->n_req; r++) {
		int n = attn_n_row(rows, r);

		if (!n)
			continue;
		seq[b.n_seq] = (struct state_seq){ rows->row0[r], n, slot[r], rows->pos0[r] == 0,
						   b.n_chunk };
		for (int i = 0; i < n; i += STATE_CHUNK)
			chunk[b.n_chunk++] = (struct state_chunk){ b.n_seq, i };
		b.n_seq++;
	}
	return b;
}

double state_silu(double x)
{
	return x / (1 + exp(-x));
}

double state_softplus(double x)
{
	return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static bf16_t *tail_of(const struct state_conv *c, const struct state_seq *seq)
{
	return c->tail + (size_t)seq->slot * (size_t)(c->width - 1) * (size_t)c->channels;
}

/* Element `channel` of the rows, t after seq->row; before it, of the slot. */
static double input_value(const struct state_conv *c, const struct state_seq *seq, int t,
			  int channel)
{
	size_t row = (size_t)(seq->row + t);

	if (t >= 0)
		return (double)bf16_to_f32(c->rows[row * (size_t)c->stride + (size_t)channel]);
	if (seq->fresh)
		return 0;
	return (double)bf16_to_f32(tail_of(c, seq)[(c->width - 1 + t) * c->channels + channel]);
}

void state_convolve(const struct state_conv *c, const struct state_seq *seq, int t, int first,
		    int n, double *to)
{
	for (int i = 0; i < n; i++) {
		const bf16_t *w = c->w + (size_t)(first + i) * (size_t)c->width;
		double sum = c->bias ? (double)bf16_to_f32(c->bias[first + i]) : 0;

		for (int j = 0; j < c->width; j++)
			sum += (double)bf16_to_f32(w[j]) *
			       input_value(c, seq, t - c->width + 1 + j, first + i);
		to[i] = state_silu(sum);
	}
}

/* Ascending rows: none is read after it is written. */
void state_keep_tail(const struct state_conv *c, const struct state_seq *seq)
{
	const int n = c->width - 1;
	bf16_t *tail = tail_of(c, seq);

	for (int i = 0; i < n; i++)
		for (int j = 0; j < c->channels; j++)
			tail[i * c->channels + j] =
				bf16_from_f32((float)input_value(c, seq, seq->n_row - n + i, j));
}
