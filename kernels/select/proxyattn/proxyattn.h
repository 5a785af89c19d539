/* SPDX-License-Identifier: Apache-2.0 */
/* ProxyAttn: shared by the reference and the CUDA file. */
#ifndef AR_PROXYATTN_H
#define AR_PROXYATTN_H

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct proxyattn {
	int64_t groups, stride;
	double mass;
	int block; /* index into 64, 128 */
};

/* Heads [q, q_end) of a group and the KV heads [kv, kv_end) that they belong to. */
struct proxy_heads {
	int q, q_end, kv, kv_end;
};

AR_BOTH static inline int proxyattn_size(const struct proxyattn *p, const struct attn_shape *s)
{
	return (int)((s->q_heads + p->groups - 1) / p->groups);
}

/* The number of groups; the last may be smaller. */
AR_BOTH static inline int proxyattn_groups(const struct proxyattn *p, const struct attn_shape *s)
{
	int size = proxyattn_size(p, s);

	return (s->q_heads + size - 1) / size;
}

AR_BOTH static inline struct proxy_heads proxyattn_heads(const struct proxyattn *p,
							 const struct attn_shape *s, int g)
{
	int size = proxyattn_size(p, s), per_kv = s->q_heads / s->kv_heads, q = g * size;
	int end = q + size < s->q_heads ? q + size : s->q_heads;
	struct proxy_heads h = { q, end, q / per_kv, (end - 1) / per_kv + 1 };

	return h;
}

/* Blocks that query block qa of a head with budget k may keep, of n_blk of the request. */
AR_BOTH static inline int proxyattn_budget(int k, int qa, int n_blk)
{
	int n = (int)(((int64_t)k * (qa + 1) + n_blk - 1) / n_blk);

	return n < 1 ? 1 : n;
}

selector_work_fn proxyattn_work_bytes;
selector_fn proxyattn_enqueue;

/* The same with the kernels of one kind, for sizes that they support.  n_qblk > 0. */
selector_fn proxyattn_sm80_enqueue, proxyattn_sm90_enqueue;

#ifdef __cplusplus
}
#endif
#endif
