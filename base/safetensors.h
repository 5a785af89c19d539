/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: named arrays after a JSON header.
 *
 *   8 bytes   length H of the header, little endian
 *   H bytes   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [B, E]}, ...
 *             "__metadata__": {"KEY": "VALUE", ...}}, blanks at its end
 *   data      B and E count from here; the arrays fill the data without gap or overlap
 */
#ifndef AR_SAFETENSORS_H
#define AR_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/binfile.h"
#include "base/status.h"

enum { SAFETENSORS_MAX_DIM = 8 };

struct safetensors_tensor {
	const char *name;  /* owned by the file it came from */
	const char *dtype; /* "BF16" */
	int n_dim;
	int64_t dim[SAFETENSORS_MAX_DIM];
	uint64_t begin, end; /* file offsets of its bytes */
};

struct safetensors;

/* Return whether a file of size bytes that begins with head[0..n) can be safetensors; n <= 16. */
bool safetensors_sniff(const unsigned char *head, size_t n, uint64_t size);

/* Open path and read its header.  AR_DATA: the header is malformed or disagrees with the size.
 * For types of known size (BF16, F16, F32 ...), the bytes agree with the shape. */
enum ar_status safetensors_open(struct safetensors **out, const char *path, struct ar_err *err);
void safetensors_close(struct safetensors *s); /* NULL is fine */

size_t safetensors_count(const struct safetensors *s);
const struct safetensors_tensor *safetensors_at(const struct safetensors *s, size_t i);
const char *safetensors_meta(const struct safetensors *s, const char *key); /* or NULL */

/* Read n bytes of t from byte offset on; offset + n must lie within the tensor. */
enum ar_status safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
				uint64_t offset, void *buf, size_t n, struct ar_err *err);

/* Write the header for n BF16 tensors in the order of t; only name, n_dim and dim are read.  meta:
 * key, value, ..., NULL; a pair with a NULL value is left out.  The caller then writes the data
 * with outfile_write. */
enum ar_status safetensors_write_header(struct outfile *f, const struct safetensors_tensor *t,
					size_t n, const char *const *meta, struct ar_err *err);

#endif
