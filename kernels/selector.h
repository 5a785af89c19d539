/* Selectors: what a chunk may look at.  One file NAME.c (parameters, reference,
 * descriptor) and one file NAME_sm80.cu in kernels/selectors/, one row in selectors.c. */
#ifndef AR_SELECTOR_H
#define AR_SELECTOR_H

#include "kernels/attn.h"
#include "src/base/opt.h"
#include "src/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct selector {
	const char *name;	/* "flashprefill" */
	const char *title;	/* one line */
	const char *origin;	/* paper or code it follows */
	const struct opt *params;
	size_t param_size;

	/* Bytes that the selector keeps beside each page of the cache (all KV heads, one
	 * layer), NULL: none.  Its content must be derivable from the page's K, so
	 * that it survives preemption by being rebuilt with the chunk. */
	size_t (*state_bytes)(const struct attn_shape *s);

	/* NULL in both: everything is kept ("none", dense). */

	/* The reference.  Reads q and kv, brings state [page][state_bytes] up to date for
	 * the blocks the chunk touches, writes every word of mask.  May allocate. */
	enum ar_status (*ref)(const struct attn_batch *b, const void *param, const bf16_t *q,
			      const struct kv_cache *kv, void *state, uint32_t *mask,
			      struct ar_err *err);

	/* CUDA; NULL in a build without.  Only enqueues on stream; no allocation, no
	 * synchronisation.  work has work_bytes() bytes of device memory. */
	size_t (*work_bytes)(const struct attn_shape *s, const struct attn_limits *l);
	enum ar_status (*enqueue)(const struct attn_batch *b, const void *param, const bf16_t *q,
				  const struct kv_cache *kv, void *state, uint32_t *mask,
				  void *work, void *stream, struct ar_err *err);
};

extern const struct selector *const selectors[];	/* ends with NULL */
const struct selector *selector_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
