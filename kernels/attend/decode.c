/* Reference of decode attention: a chunk of one row. */
#include "config.h"

#include "kernels/attend/attend.h"

enum ar_status decode_ref(const struct attn_batch *b, int heads, const struct block_lists *lists,
			  const bf16_t *q, const struct kv_cache *kv, bf16_t *out,
			  struct ar_err *err)
{
	static const struct block_lists all;

	return attend_ref(b, attend_plan_rows, heads, lists ? lists : &all, q, kv, out, NULL, err);
}
