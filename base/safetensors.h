/*
 * safetensors files: named arrays after a JSON header.
 *
 *   8 bytes   length H of the header, little endian
 *   H bytes   {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [B, E]}, ...
 *             "__metadata__": {"KEY": "VALUE", ...}}, blanks at its end
 *   data      B and E count from here; the arrays fill it without gap or overlap
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
	const char *name;	/* owned by the file it came from */
	const char *dtype;	/* "BF16" */
	int n_dim;
	int64_t dim[SAFETENSORS_MAX_DIM];
	uint64_t begin, end;	/* of its bytes in the file */
};

struct safetensors;

/* Whether a file of this size that begins with head[0..n), n <= 16, can be one. */
bool safetensors_sniff(const unsigned char *head, size_t n, uint64_t size);

/* AR_DATA when the header is malformed or disagrees with the file's size.  For types whose
 * size this reader knows (BF16, F16, F32 ...), bytes and shape agree. */
enum ar_status safetensors_open(struct safetensors **out, const char *path, struct ar_err *err);
void safetensors_close(struct safetensors *s);	/* NULL is fine */

size_t safetensors_count(const struct safetensors *s);
const struct safetensors_tensor *safetensors_at(const struct safetensors *s, size_t i);
const char *safetensors_meta(const struct safetensors *s, const char *key);	/* or NULL */

/* n bytes of t from its byte offset on; offset + n must lie within the tensor. */
enum ar_status safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
				uint64_t offset, void *buf, size_t n, struct ar_err *err);

/* The header for BF16 tensors that lie in f in the order given; only name, n_dim and dim are
 * read.  meta: key, value, ..., NULL; pairs whose value is NULL are left out.  The data follow
 * with outfile_write. */
enum ar_status safetensors_write_header(struct outfile *f, const struct safetensors_tensor *t,
					size_t n, const char *const *meta, struct ar_err *err);

#endif
