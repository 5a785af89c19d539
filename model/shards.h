/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a Hugging Face folder: of model.safetensors, or of all files that
 * model.safetensors.index.json names. */
#ifndef AR_SHARDS_H
#define AR_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bf16.h"
#include "base/safetensors.h"
#include "base/status.h"

struct shard_tensor {
	const struct safetensors_tensor *t;
	const struct safetensors *file;
	const char *path; /* of the file */
	bool asked;	  /* shards_find() has returned it */
};

struct shards {
	struct shard_file {
		char *path;
		struct safetensors *file;
	} * file;
	size_t n_file;
	struct shard_tensor *tensor; /* by name */
	size_t n;
};

/* Read the headers.  AR_DATA: a file is missing or malformed, or two have a tensor of one name.
 * Call shards_close() even after a failure. */
enum ar_status shards_open(struct shards *s, const char *dir, struct ar_err *err);
void shards_close(struct shards *s);

/* NULL: there is no such tensor. */
struct shard_tensor *shards_find(struct shards *s, const char *name);
/* Tensor i by name; NULL: there are no more. */
const struct shard_tensor *shards_at(const struct shards *s, size_t i);

/* AR_DATA: t is not [rows][cols], or [rows] if cols is 0, or its type is not BF16, F16 or F32. */
enum ar_status shards_check(const struct shard_tensor *t, int64_t rows, int64_t cols,
			    struct ar_err *err);

/* A part of a tensor: rows [row, row + rows), and of each of a matrix columns [col, col + cols). */
struct shard_part {
	int64_t row, rows, col, cols;
};

/* Read a part of t, which shards_check() has passed, to out[rows][cols]; cols is not read if t has
 * one dimension.  AR_DATA: a value of the part is not finite. */
enum ar_status shards_read(const struct shard_tensor *t, const struct shard_part *part, bf16_t *out,
			   struct ar_err *err);

#endif
