/* SPDX-License-Identifier: Apache-2.0 */
/* Unions and block lists: the rules and the reference. */
#include "config.h"
#include "kernels/union/union.h"

const struct union_rule unions[] = {
	{ "none", "a list per query head and query block, as selected", UNION_NONE },
	{ "q-block", "a table per query head: the union over the chunk's query blocks",
	  UNION_QBLOCK },
	{ "sub-group", "a table per four query heads of a KV head", UNION_SUBGROUP },
	{ "group", "a table per KV head: the union over all of its query heads", UNION_GROUP },
	{ 0 }
};

int union_heads(enum union_kind u, const struct attn_shape *s)
{
	int group = s->q_heads / s->kv_heads;

	switch (u) {
	case UNION_NONE: break;
	case UNION_QBLOCK: return 1;
	case UNION_SUBGROUP: return group < 4 ? group : 4;
	case UNION_GROUP: return group;
	}
	return 0;
}

int union_groups(int heads, const struct attn_shape *s)
{
	int group = s->q_heads / s->kv_heads;

	return heads ? s->kv_heads * ((group + heads - 1) / heads) : 0;
}

static void or_row(uint32_t *to, const uint32_t *from, int words)
{
	for (int w = 0; w < words; w++)
		to[w] |= from[w];
}

/* Keep bits [0, past), set [past, end), clear the rest. */
static void open_chunk(uint32_t *row, int past, int end, int words)
{
	for (int j = past; j < words * 32; j++)
		if (j < end)
			row[j / 32] |= 1u << j % 32;
		else
			row[j / 32] &= ~(1u << j % 32);
}

/* One head group: the union over heads [h, h_end) and the query blocks of request r before the
 * dense tail. */
static void union_row(const struct attn_batch *b, int r, int h, int h_end, const uint32_t *mask,
		      uint32_t *row)
{
	int tok = b->shape.page_tok, words = b->keys.mask_words;
	int end = b->keys.len[r];

	for (int w = 0; w < words; w++)
		row[w] = 0;
	for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r] + attn_body(b, r); i++)
		for (int k = h; k < h_end; k++) {
			size_t at = (size_t)i * (size_t)b->shape.q_heads + (size_t)k;

			or_row(row, mask + at * (size_t)words, words);
		}
	open_chunk(row, b->rows.pos0[r] / tok, (end + tok - 1) / tok, words);
}

void union_ref(const struct attn_batch *b, int heads, const uint32_t *mask, uint32_t *table)
{
	int group = b->shape.q_heads / b->shape.kv_heads;

	for (int r = 0; r < b->rows.n_req; r++)
		for (int kv = 0; kv < b->shape.kv_heads; kv++)
			for (int h = 0; h < group; h += heads) {
				int n = heads < group - h ? heads : group - h;

				union_row(b, r, kv * group + h, kv * group + h + n, mask, table);
				table += b->keys.mask_words;
			}
}

void lists_ref(const uint32_t *mask, int n_rows, int words, struct block_lists *lists)
{
	for (int l = 0; l < n_rows; l++) {
		const uint32_t *row = mask + (size_t)l * (size_t)words;
		uint16_t *block = lists->block + (size_t)l * (size_t)lists->stride;
		int n = 0;

		for (int j = 0; j < words * 32; j++)
			if (row[j / 32] >> j % 32 & 1)
				block[n++] = (uint16_t)j;
		lists->n[l] = n;
	}
}
