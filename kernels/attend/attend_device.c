/* Which of the two attention kernels a device gets, and whether tiles are cut for it. */
#include "config.h"

#include "kernels/attend/attend.h"
#include "kernels/prim/cuda.h"

static enum ar_status check(const struct attn_shape *s, int heads, struct ar_err *err)
{
	if (s->page_tok != 64 && s->page_tok != 128)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes blocks of 64 and 128 "
			       "tokens, not %d", s->page_tok);
	if (heads > ATTEND_ROWS)
		return ar_fail(err, AR_USAGE, "%d query heads per KV head; attention on the GPU "
			       "takes %d", heads, ATTEND_ROWS);
	if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes head sizes 64, 128 and "
			       "256, not %d", s->head_dim);
	return AR_OK;
}

/* The current device's compute capability, without the minor, and its multiprocessors. */
static enum ar_status ask_device(int *major, int *n_sm, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int device;

	CU(cudaGetDevice(&device));
	CU(cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device));
	CU(cudaDeviceGetAttribute(n_sm, cudaDevAttrMultiProcessorCount, device));
out:
	return st;
}

enum ar_status executor_multiprocessors(int *n_sm, struct ar_err *err)
{
	int major, n;
	enum ar_status st = ask_device(&major, &n, err);

	if (!st)
		*n_sm = major == 9 ? n : 0;
	return st;
}

enum ar_status attend_enqueue(const struct attn_call *call, attend_plan_fn *plan, int heads,
			      const struct block_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	enum ar_status st = check(&b->shape, heads, err);
	attend_enqueue_fn *fn;
	int major, n_sm;

	if (st || !b->n_tile)
		return st;
	st = ask_device(&major, &n_sm, err);
	if (st)
		return st;
	if (b->shape.head_dim == 256 && major != 9)
		return ar_fail(err, AR_USAGE, "attention with head size 256 takes a GPU of compute "
			       "capability 9, this one has %d", major);
	fn = major == 9 ? attend_sm90_enqueue : attend_sm80_enqueue;
	return fn(call, plan, heads, lists, err);
}
