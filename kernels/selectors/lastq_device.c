/* Which of the two kernels a device gets. */
#include "config.h"

#include "kernels/executor.h"
#include "kernels/selectors/lastq.h"

/* Of the sums, which lie before what the kernels work with. */
static size_t sum_floats(int n_req, int q_heads, int max_kv_blk, int page_tok)
{
	return 2 * (size_t)n_req * (size_t)q_heads * (size_t)max_kv_blk * (size_t)page_tok;
}

size_t lastq_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	size_t new = lastq_sm90_work_bytes(s, l), old = lastq_sm80_work_bytes(s, l);

	return sum_floats(l->max_req, s->q_heads, l->max_kv_blk, s->page_tok) * sizeof(float) +
	       (new > old ? new : old);
}

enum ar_status lastq_enqueue(const struct attn_batch *b, int n, const bf16_t *q, const bf16_t *k,
			     struct lastq *out, void *work, void *stream, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	size_t floats = sum_floats(b->n_req, s->q_heads, b->max_kv_blk, s->page_tok);
	float *sums = work;
	int hopper;
	enum ar_status st;

	if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		return ar_fail(err, AR_USAGE, "scores of the last queries on the GPU take head "
			       "sizes 64, 128 and 256, not %d", s->head_dim);
	st = executor_multiprocessors(&hopper, err);
	if (st)
		return st;
	*out = (struct lastq){ sums, sums + floats / 2, b->max_kv_blk * s->page_tok };
	return (hopper ? lastq_sm90_enqueue : lastq_sm80_enqueue)(b, n, q, k, out, sums + floats,
								  stream, err);
}
