/* Methods on the host: the named compositions, the reference and the counts. */
#include "config.h"
#include "kernels/method.h"

#include <stdlib.h>
#include <string.h>

const struct method_name method_names[] = {
	{ "dense", "select=none/union=none/exec=paged",
	  "dense causal attention over the paged cache", "the baseline of every comparison" },
	{ "flashprefill", "select=flashprefill,alpha=0.01/union=none/exec=blocksparse",
	  "block-sparse attention, a list per query block and head", "FlashPrefill (2026)" },
	{ "compact-fp", "select=flashprefill,alpha=0.06/union=group/exec=paged",
	  "FlashPrefill's blocks, united per KV head and read as dense pages",
	  "CompactAttention (2026), CA-FP zero-copy" },
	{ "trishape", "select=trishape/union=group/exec=paged",
	  "the first and the last blocks before the chunk", "OpenVINO GenAI, TRISHAPE" },
	{ 0 }
};

int method_page_tok(const struct method *m)
{
	return m->selector->block_tok ? m->selector->block_tok(m->param) : 128;
}

enum ar_status method_open(struct method *m, const struct selector_env *env, struct ar_err *err)
{
	enum ar_status st;

	if (!m->selector->open)
		return AR_OK;
	st = m->selector->open(&m->self, m->param, env, err);
	if (st)
		ar_err_prefix(err, "method '%s'", m->name);
	return st;
}

size_t method_state_bytes(const struct method *m, const struct attn_shape *s)
{
	return m->selector->state_bytes ? m->selector->state_bytes(m->self, s) : 0;
}

static int table_heads(const struct method *m, const struct attn_shape *s)
{
	return m->dense ? 0 : union_heads(m->u, s);
}

int method_plan(const struct method *m, const struct attn_batch *b, struct attn_tile *tile)
{
	return m->executor->plan(b, table_heads(m, &b->shape), tile);
}

/* ---- counts ---- */

static bool kept(const uint32_t *row, int j)
{
	return !row || row[j / 32] >> j % 32 & 1;
}

/* Kept blocks before the chunk in a row; no row: all of them. */
static int64_t count_past(const uint32_t *row, int past)
{
	int64_t n = 0;

	for (int j = 0; j < past; j++)
		n += kept(row, j);
	return n;
}

/* (row, key) pairs of request 0's query block i, one head, and the kept ones among them. */
static void count_pairs(const struct attn_batch *b, int i, const uint32_t *row, int64_t *total,
			int64_t *sel)
{
	int64_t tok = b->shape.page_tok, ctx = b->ctx[0], end = ctx + b->row0[1];
	int64_t qa = ctx / tok + i, first = qa * tok;
	int64_t lo = (first > ctx ? first : ctx) - first;
	int64_t hi = (first + tok < end ? first + tok : end) - first;
	int64_t full = (hi - lo) * tok, own = (hi * (hi + 1) - lo * (lo + 1)) / 2;

	for (int j = 0; j < qa; j++)
		*sel += kept(row, j) ? full : 0;
	*sel += kept(row, (int)qa) ? own : 0;
	*total += qa * full + own;
}

/* One query head of request 0, all of its query blocks. */
static void count_head(const struct attn_batch *b, int head, int heads, const uint32_t *mask,
		       const uint32_t *table_row, struct selection_count *c)
{
	int past = b->ctx[0] / b->shape.page_tok, n = b->qblk0[1];
	size_t words = (size_t)b->mask_words, pitch = (size_t)b->shape.q_heads * words;
	const uint32_t *row = mask ? mask + (size_t)head * words : NULL;

	for (int i = 0; i < n; i++) {
		const uint32_t *own = row ? row + (size_t)i * pitch : NULL;

		c->tiles_total += past;
		c->tiles_sel += count_past(own, past);
		count_pairs(b, i, heads ? table_row : own, &c->exec_total, &c->exec_sel);
	}
	for (int j = 0; j < past; j++) {
		int i = 0;

		while (i < n && !kept(row ? row + (size_t)i * pitch : NULL, j))
			i++;
		c->qunion_sel += i < n;
	}
	c->qunion_total += past;
}

void method_count(const struct method *m, const struct attn_batch *b, const uint32_t *mask,
		  const uint32_t *table, struct selection_count *count)
{
	const struct attn_shape *s = &b->shape;
	int heads = table_heads(m, s), group = s->q_heads / s->kv_heads;
	int past = b->ctx[0] / s->page_tok;

	for (int kv = 0; kv < s->kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){ 0 };
		for (int k = 0; k < group; k++) {
			if (heads && k && k % heads == 0)
				table += b->mask_words;
			if (heads && k % heads == 0) {
				c->group_total += past;
				c->group_sel += count_past(table, past);
			}
			count_head(b, kv * group + k, heads, mask, table, c);
		}
		if (heads)
			table += b->mask_words;
		else
			c->group_total = c->tiles_total, c->group_sel = c->tiles_sel;
	}
}

/* ---- reference ---- */

/* What lies between a selector and an executor. */
struct between {
	struct selection chosen;
	uint32_t *table;
	struct block_lists lists;
};

static void between_release(struct between *x)
{
	free(x->chosen.mask);
	free(x->table);
	free(x->lists.block);
	free(x->lists.n);
}

/* At least one element, so that an empty batch is no failure. */
static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static enum ar_status select_ref(const struct method *m, const struct attn_batch *b, int layer,
				 const bf16_t *q, const struct kv_cache *kv, void *state,
				 struct between *x, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	int heads = table_heads(m, s);
	size_t n_mask = (size_t)b->n_qblk * (size_t)s->q_heads;
	size_t n_list = heads ? (size_t)b->n_req * (size_t)union_groups(heads, s) : n_mask;
	enum ar_status st;

	x->chosen.mask = array(n_mask * (size_t)b->mask_words, sizeof *x->chosen.mask);
	x->table = array(heads ? n_list * (size_t)b->mask_words : 1, sizeof *x->table);
	x->lists.block = array(n_list * (size_t)b->max_kv_blk, sizeof *x->lists.block);
	x->lists.n = array(n_list, sizeof *x->lists.n);
	x->lists.stride = b->max_kv_blk;
	if (!x->chosen.mask || !x->table || !x->lists.block || !x->lists.n)
		return ar_nomem(err);
	st = m->selector->ref(b, m->self, layer, q, kv, state, &x->chosen, err);
	if (st)
		return st;
	if (heads)
		union_ref(b, heads, x->chosen.mask, x->table);
	lists_ref(heads ? x->table : x->chosen.mask, (int)n_list, b->mask_words, &x->lists);
	return AR_OK;
}

enum ar_status method_ref(const struct method *m, const struct attn_batch *b, int layer,
			  const bf16_t *q, const struct kv_cache *kv, void *state, bf16_t *out,
			  float *lse, struct selection_count *count, struct ar_err *err)
{
	struct between x = { 0 };
	enum ar_status st = AR_OK;

	if (!m->dense)
		st = select_ref(m, b, layer, q, kv, state, &x, err);
	if (!st)
		st = m->executor->ref(b, table_heads(m, &b->shape), &x.lists, q, kv, out, lse, err);
	if (!st && count)
		method_count(m, b, x.chosen.mask, x.table, count);
	between_release(&x);
	return st;
}
