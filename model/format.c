/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/format.h"

#include <string.h>

/* Sizes are in bits.  per_matrix: of the scale of a matrix; scale: of each other scale. */
static const struct {
	const char *name;
	int bits, scale, per_matrix;
} formats[FORMATS] = {
	[FORMAT_BF16] = { "bf16", 16, 0, 0 },
	[FORMAT_FP8_TENSOR] = { "fp8-tensor", 8, 0, 32 },
	[FORMAT_FP8_CHANNEL] = { "fp8-channel", 8, 32, 0 },
	[FORMAT_FP8_BLOCK] = { "fp8-block", 8, 32, 0 },
	[FORMAT_MXFP8] = { "mxfp8", 8, 8, 0 },
	[FORMAT_INT4_GROUP] = { "int4-group", 4, 16, 0 },
	[FORMAT_MXFP4] = { "mxfp4", 4, 8, 0 },
	[FORMAT_NVFP4] = { "nvfp4", 4, 8, 32 },
};

const char *format_name(enum format_kind kind)
{
	return formats[kind].name;
}

int format_find(const char *name)
{
	for (int i = 0; i < FORMATS; i++)
		if (!strcmp(formats[i].name, name))
			return i;
	return -1;
}

bool format_is_fp8_product(const struct linear_format *f)
{
	return f->rows != ROWS_BF16;
}

bool format_equal(const struct linear_format *a, const struct linear_format *b)
{
	return a->kind == b->kind && a->rows == b->rows && a->group == b->group &&
	       a->block[0] == b->block[0] && a->block[1] == b->block[1] && a->zero == b->zero;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Scales of a weight, but for that of the matrix. */
static int64_t scales(const struct linear_format *f, int64_t rows, int64_t cols)
{
	if (!formats[f->kind].scale)
		return 0;
	if (f->kind == FORMAT_FP8_BLOCK)
		return ceil_div(rows, f->block[0]) * ceil_div(cols, f->block[1]);
	return rows * (f->group ? ceil_div(cols, f->group) : 1);
}

int64_t format_bytes(const struct linear_format *f, int64_t rows, int64_t cols)
{
	int64_t n = scales(f, rows, cols);
	int64_t bits = rows * cols * formats[f->kind].bits + n * formats[f->kind].scale;

	if (rows && cols)
		bits += formats[f->kind].per_matrix;
	return ceil_div(bits + (f->zero ? 4 * n : 0), 8);
}
