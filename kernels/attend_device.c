/* Which of the two attention kernels a device gets. */
#include "config.h"

#include "kernels/attend.h"
#include "kernels/cuda.h"

static enum ar_status check(const struct attn_shape *s, int heads, struct ar_err *err)
{
	enum { PAGE = 128 };

	if (s->page_tok != PAGE)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes blocks of %d tokens, "
			       "not %d", PAGE, s->page_tok);
	if (heads > ATTEND_ROWS)
		return ar_fail(err, AR_USAGE, "%d query heads per KV head; attention on the GPU "
			       "takes %d", heads, ATTEND_ROWS);
	if (s->head_dim != 64 && s->head_dim != 128)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes head sizes 64 and 128, "
			       "not %d", s->head_dim);
	return AR_OK;
}

enum ar_status attend_enqueue(const struct attn_batch *b, int heads,
			      const struct block_lists *lists, const bf16_t *q,
			      const struct kv_cache *kv, bf16_t *out, float *lse,
			      void *stream, struct ar_err *err)
{
	enum ar_status st = check(&b->shape, heads, err);
	int device, major;

	if (st || !b->n_tile)
		return st;
	CU(cudaGetDevice(&device));
	CU(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
	st = (major == 9 ? attend_sm90_enqueue : attend_sm80_enqueue)(b, heads, lists, q, kv, out,
								       lse, stream, err);
out:
	return st;
}
