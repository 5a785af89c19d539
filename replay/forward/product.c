/* SPDX-License-Identifier: Apache-2.0 */
/* A job is a tile of columns, whose weights it widens and transposes once for all rows. */
#include "config.h"
#include "replay/forward/product.h"

#include <stdlib.h>

#include "base/parallel.h"
#include "kernels/prim/multiply.h"

enum {
	COLS = 16, /* of a tile; a row of the tile is a line of the cache */
	ROWS = 16, /* that are multiplied at a time */
};

struct job {
	const struct product *p;
	const float *x; /* [rows, padded][in] */
};

static void store_tile(const struct product *p, const float *c, int row, int col, int rows,
		       int cols)
{
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < cols; j++) {
			size_t to = (size_t)(row + i) * (size_t)p->out + (size_t)(col + j);
			float x = c[i * COLS + j];

			if (p->bias)
				x += bf16_to_f32(p->bias[col + j]);
			if (p->y)
				p->y[to] = bf16_from_f32(x);
			else
				p->real[to] = x;
		}
}

static enum ar_status run_tile(void *ctx, int i, struct ar_err *err)
{
	const struct job *j = ctx;
	const struct product *p = j->p;
	int col = i * COLS, cols = p->out - col < COLS ? p->out - col : COLS;
	float *w = calloc((size_t)p->in * COLS, sizeof *w), c[ROWS * COLS];

	if (!w)
		return ar_nomem(err);
	multiply_transpose(w, COLS, p->w + (size_t)col * (size_t)p->in, cols, p->in);
	for (int row = 0; row < p->rows; row += ROWS) {
		int rows = p->rows - row < ROWS ? p->rows - row : ROWS;

		multiply(c, COLS, j->x + (size_t)row * (size_t)p->in, p->in, w, COLS, rows, cols,
			 p->in, false);
		store_tile(p, c, row, col, rows, cols);
	}
	free(w);
	return AR_OK;
}

enum ar_status product_run(const struct product *p, struct ar_err *err)
{
	size_t in = (size_t)p->in, rows = (size_t)multiply_pad(p->rows, MULTIPLY_ROWS);
	float *x = calloc(rows * in, sizeof *x);
	enum ar_status st;

	if (!x)
		return ar_nomem(err);
	for (size_t r = 0; r < (size_t)p->rows; r++)
		bf16_widen(x + r * in, p->x + r * in, p->in);
	st = parallel_each((p->out + COLS - 1) / COLS, run_tile, &(struct job){ p, x }, err);
	free(x);
	return st;
}
