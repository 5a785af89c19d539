/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tile plan and the reference of attention over block lists.
 *
 * The reference is fp32 with an online softmax, one block after the other.  The keys of a
 * block are converted once per tile and transposed for multiply().  A row's result depends on its
 * own list and first key alone: not on the rows packed with it, nor on the number of threads.  A
 * sink is in the maximum and the sum from the start.
 */
#include "config.h"

#include "kernels/attend/attend.h"
#include "kernels/attend/attend_cut.h"
#include "kernels/prim/multiply.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- plan ---- */

enum {
	N_RANK = 256,
	MAX_SLOT = 512,	 /* most thread blocks at once that a plan fills */
	PART_COST = 600, /* fixed cost of a tile, in keys, as fitted to times */
	JOIN_COST = 256, /* more for a part to merge */
	N_TRY = 16,	 /* levels that a plan tries, about */
	MAX_END = 4096,	 /* times that a plan tells apart */
};

bool attend_skips(const struct attn_call *call)
{
	const struct attn_batch *b = call->b;

	return attn_skip_on(&b->skip) && !b->rows.first && !b->keys.pos && !call->sink;
}

int attend_rank(int n)
{
	int e;

	n--;
	if (n < 8)
		return n;
	e = 31 - __builtin_clz((unsigned)n);
	return 8 * (e - 2) + (n >> (e - 3) & 7);
}

/* Neighbouring whole tiles of one length. */
struct run {
	int n_blk, n;
};

/*
 * A plan is made in passes over the whole tiles, in the order (request, head, row).  A tile is cut
 * into parts of at most `part` blocks.  For w waves of thread blocks, the best `part` is the
 * smallest that makes at most w * n_slot parts.
 *
 * Where every block is read, lengths are known, and parts need not be even: each tile may be cut at
 * one level, a number of blocks.  Multiprocessors that are idle or have short tiles take the blocks
 * above it.  Under tables the part above the level may be empty, but still costs a part.
 *
 * Of no cut and these a plan takes the one that ends first.  To find out, it lets slots take parts
 * in its order, as thread blocks will.  Example: 256 tiles of 1 to 32 blocks on 132 multiprocessors
 * stay whole, because short tiles follow long ones.
 *
 * Costs are fitted to 32 times on an H200, 7 % off on average: a tile takes as much as 4.7 blocks
 * of 128 keys more than its own, and a part to merge as 2 more.  3.5 and 3, or 5.5 and 1, fit as
 * well.  Times in us, by rows of the prompt, with 8 query and 2 KV heads.  The first is of a plan
 * that took waves of even parts for equal, the second of this one:
 *	1500	18.1  17.6	2200	24.4  24.6	3072	39.7  35.6	4096	62.3  50.0
 *	2048	23.7  22.8	2500	34.2  28.9	3500	46.6  40.7
 *	2 x 512 rows after 7680, 16 heads over 4	90.4  86.0	1500 after 6692	132.3  124.9
 * Even parts of 1024 keys and more, and of 512 and more, 16 heads over 4:
 *	128 rows of 2K	21.9  20.1	256 of 2K	22.0  21.0	2 x 128 of 2K	22.1  21.0
 *	128 of 4K	24.7  24.2	256 of 4K	26.1  26.0	512 of 2K	22.7  22.7
 * Parts that share rows, of 512 keys and more, and up to 8 of 256 and more: 128 rows of 1K 17.4 and
 * 15.6, of 2K 17.9 and 17.0.
 * Where a tile costs 2 blocks and a merge 1, more tiles are cut: 2048 rows take 27.2, 2200 28.6,
 * 3072 39.2.  Where a merge costs 1, 2200 rows take 26.6.
 *
 * Lists per (query block, head) differ in length by far more than their contexts do.  There a tile
 * gets a part per `least` blocks of context, up to an equal share of the room.  The kernel cuts.
 *
 * Tiles of the dense tail read every block, the others only the blocks of tables.  So tiles of the
 * dense tail go first.
 */
struct plan {
	int n_slot;	/* thread blocks that run at once */
	int least;	/* fewest blocks of a part */
	int share;	/* the same for up to ATTEND_SHARES parts; 0: they have least, too */
	int part;	/* most blocks of a part */
	bool level;	/* each has just that many, but for the last of a tile */
	int room;	/* most parts of a tile */
	int cost, join; /* of a tile and, more, of a part to merge, in blocks */
	int n_whole, n; /* tiles before and after cutting */
	int longest;	/* blocks of a whole tile */
	int n_run;	/* the first runs of whole tiles */
	struct run run[2 * MAX_SLOT];
	int at[N_RANK];		/* tiles of each rank; in the last pass, where its next tile goes */
	struct attn_tile *tile; /* NULL: only count */
};

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

/* a > 0 */
static int divide_up(int a, int b)
{
	return (a - 1) / b + 1;
}

/* Even parts of a tile, at most. */
static int most_parts(const struct plan *p, int n_blk)
{
	int n = n_blk / p->least, few = p->share ? lesser(n_blk / p->share, ATTEND_SHARES) : 1;

	n = lesser(n > few ? n : few, p->room);
	return n > 1 ? n : 1;
}

static void plan_add(struct plan *p, struct attn_tile t, int n_blk)
{
	int n = divide_up(n_blk, p->part);

	t.n_part = (int16_t)(p->level ? n : lesser(n, most_parts(p, n_blk)));
	t.len = p->level ? p->part : 0;
	t.place = p->n;
	for (t.part = 0; t.part < t.n_part; t.part++) {
		int own = p->level ? lesser(t.len, n_blk - t.part * t.len) :
				     divide_up(n_blk, t.n_part);
		int *at = &p->at[t.list < 0 ? N_RANK - 1 : attend_rank(own)];

		if (p->tile)
			p->tile[*at] = t;
		++*at;
	}
	if (!p->n_run || (p->run[p->n_run - 1].n_blk != n_blk && p->n_run < 2 * MAX_SLOT))
		p->run[p->n_run++] = (struct run){ n_blk, 0 };
	p->run[p->n_run - 1].n++;
	p->longest = n_blk > p->longest ? n_blk : p->longest;
	p->n_whole++;
	p->n += t.n_part;
}

/* The first block that row i of the batch sees. */
static int first_block(const struct attn_batch *b, int i)
{
	return b->rows.first ? b->rows.first[i] / b->shape.page_tok : 0;
}

static void plan_pass(struct plan *p, const struct attn_batch *b, int heads, bool per_block)
{
	const struct attn_shape *s = &b->shape;
	int group = s->q_heads / s->kv_heads;
	int pack = attend_pack(b, heads), lists = divide_up(group, heads);
	int most = per_block ? s->page_tok : pack < ATTEND_ROWS ? ATTEND_ROWS / pack : 1;

	p->n = p->n_whole = p->n_run = 0;
	for (int r = 0; r < b->rows.n_req; r++) {
		const int32_t *pos = b->rows.pos + b->rows.row0[r];
		int rows = attn_n_row(&b->rows, r), first = b->rows.pos0[r] / s->page_tok;
		int body = attn_rows_below(&b->rows, r, (first + attn_body(b, r)) * s->page_tok);
		struct attn_tile t = { .req = r, .page0 = b->keys.page0[r] };

		for (; t.head < s->q_heads; t.head += t.n_head) {
			int at = t.head % group, kv_head = r * s->kv_heads + t.head / group;

			t.n_head = lesser(pack, group - at);
			for (int row = 0; row < rows; row += t.n_row) {
				int qblk = pos[row] / s->page_tok, to = row + most;

				if (per_block)
					to = attn_rows_below(&b->rows, r, (qblk + 1) * s->page_tok);
				to = row < body ? lesser(to, body) : to;
				t.row = b->rows.row0[r] + row;
				t.pos = pos[row];
				t.n_row = (to < rows ? to : rows) - row;
				t.list = row >= body ?
						 -1 :
					 per_block ?
						 (b->rows.qblk0[r] + qblk - first) * s->q_heads +
							 t.head :
						 kv_head * lists + at / heads;
				plan_add(p, t,
					 pos[row + t.n_row - 1] / s->page_tok + 1 -
						 first_block(b, t.row));
			}
		}
	}
}

/* Count the tiles when all are cut into even parts of at most `part` blocks. */
static int count_even(const struct plan *p, int part)
{
	int n = 0;

	for (int i = 0; i < p->n_run; i++)
		n += lesser(divide_up(p->run[i].n_blk, part), most_parts(p, p->run[i].n_blk)) *
		     p->run[i].n;
	return n;
}

/* The smallest part that makes at most n tiles, n_whole or more. */
static int smallest_part(const struct plan *p, int n)
{
	int lo = 1, hi = p->longest;

	while (lo < hi) {
		int mid = (lo + hi) / 2;

		if (count_even(p, mid) <= n)
			hi = mid;
		else
			lo = mid + 1;
	}
	return hi;
}

/* Turn counts of ranks into the places where they start, the highest rank first. */
static void rank_starts(int *at)
{
	for (int i = N_RANK - 1, start = 0; i >= 0; i--) {
		int count = at[i];

		at[i] = start;
		start += count;
	}
}

/* When the last of n parts ends, if each slot that is free takes the next; INT_MAX: not before
 * `limit`, at most MAX_END.  time: of each part. */
static int last_end(const int *time, int n, int n_slot, int limit)
{
	uint16_t slots[MAX_END]; /* free at each time from `now` on */
	int now = 0, last = 0;

	memset(slots, 0, (size_t)limit * sizeof *slots);
	slots[0] = (uint16_t)n_slot;
	for (int i = 0; i < n; i++) {
		int end;

		while (!slots[now])
			now++;
		end = now + time[i];
		if (end >= limit)
			return INT_MAX;
		slots[now]--;
		slots[end]++;
		last = end > last ? end : last;
	}
	return last;
}

/* Parts of a tile: all of `len` blocks, but for the last, of `last`.  cost: of each, in blocks. */
struct parts {
	int n, len, last, cost;
};

static struct parts parts_of(const struct plan *p, const struct run *r, int part, bool level)
{
	int even = divide_up(r->n_blk, part);
	int n = level ? even : lesser(even, most_parts(p, r->n_blk));
	int len = level && n > 1 ? part : divide_up(r->n_blk, n);

	return (struct parts){ n, len, level ? r->n_blk - (n - 1) * len : len,
			       p->cost + (n > 1 ? p->join : 0) };
}

/* Write the time of each part to `time`, in the order of plans.  at[r]: the place of the next part
 * of rank r. */
static void put_times(const struct plan *p, const struct parts *of, int *at, int unit, int *time)
{
	for (int i = 0; i < p->n_run; i++) {
		int *len = &at[attend_rank(of[i].len)], *last = &at[attend_rank(of[i].last)];

		for (int k = 0; k < p->run[i].n; k++) {
			for (int part = 1; part < of[i].n; part++)
				time[(*len)++] = divide_up(of[i].len + of[i].cost, unit);
			time[(*last)++] = divide_up(of[i].last + of[i].cost, unit);
		}
	}
}

/* When the last part ends, in blocks, if each slot that is free takes the next in the order of
 * plans; INT_MAX: not before `limit`, or there is no room for the parts.  part: most blocks of one;
 * level: all have as many, but for the last of a tile. */
static int parts_end(const struct plan *p, int part, bool level, int limit)
{
	int at[N_RANK] = { 0 }, time[EXECUTOR_WAVES * MAX_SLOT];
	struct parts of[2 * MAX_SLOT];
	int all = 0, sum = 0, longest = 0, unit, end;

	for (int i = 0; i < p->n_run; i++) {
		struct parts x = of[i] = parts_of(p, &p->run[i], part, level);
		int n = p->run[i].n;

		all += n * x.n;
		sum += n * ((x.n - 1) * x.len + x.last + x.n * x.cost);
		longest = x.len + x.cost > longest ? x.len + x.cost : longest;
		at[attend_rank(x.len)] += n * (x.n - 1);
		at[attend_rank(x.last)] += n;
	}
	if (all > EXECUTOR_WAVES * p->n_slot || longest >= limit ||
	    divide_up(sum, p->n_slot) >= limit)
		return INT_MAX;
	limit = lesser(limit, sum / p->n_slot + longest + 1); /* it always ends before */
	unit = divide_up(limit, MAX_END);
	rank_starts(at);
	put_times(p, of, at, unit, time);
	end = last_end(time, all, p->n_slot, divide_up(limit, unit));
	return end < INT_MAX ? end * unit : end;
}

struct cut {
	int part, end;
	bool level;
	int share;
};

static void try_cut(struct cut *best, const struct plan *p, int part, bool level)
{
	int end = parts_end(p, part, level, best->end);

	if (end < best->end)
		*best = (struct cut){ part, end, level, p->share };
}

/* Choose the cut that ends first: none, into as many even parts as one to EXECUTOR_WAVES waves have
 * or, if lengths are known, at a level.  A level below the mean of all slots cannot do.  Where all
 * parts run at once, they may be as short as p->share says. */
static void choose_part(struct plan *p, int page_tok, bool known)
{
	int step = divide_up(ATTEND_STEP, page_tok), part, sum = 0;
	struct cut best = { INT_MAX, INT_MAX, false, 0 };

	try_cut(&best, p, INT_MAX, false);
	if (p->share && p->n_whole <= p->n_slot)
		try_cut(&best, p, smallest_part(p, p->n_slot), false);
	p->share = 0;
	for (int w = 1; w <= EXECUTOR_WAVES; w++)
		if (p->n_whole <= w * p->n_slot)
			try_cut(&best, p, smallest_part(p, w * p->n_slot), false);
	for (int i = 0; i < p->n_run; i++)
		sum += p->run[i].n * p->run[i].n_blk;
	part = sum / p->n_slot > p->least ? sum / p->n_slot : p->least;
	part = divide_up(part, step) * step;
	step *= divide_up(best.end - part + 1, N_TRY * step);
	for (; known && part < p->longest && part < best.end; part += step)
		try_cut(&best, p, part, true);
	p->part = best.part;
	p->level = best.level;
	p->share = best.share;
}

/* per_block: a tile is one query block and head, with a list of its own; otherwise it may have rows
 * of several query blocks.  known: every block is read. */
static int plan_tiles(const struct attn_batch *b, int heads, bool per_block, bool known,
		      struct attn_tile *tile)
{
	int part_keys = per_block ? ATTEND_LIST_KEYS : ATTEND_PART_KEYS;
	int page_tok = b->shape.page_tok, n_sm = lesser(b->n_sm, MAX_SLOT / 2);
	bool half = per_block && 2 * page_tok <= ATTEND_ROWS; /* two tiles to a multiprocessor */
	struct plan p = { .n_slot = half ? 2 * n_sm : n_sm,
			  .part = INT_MAX,
			  .room = INT_MAX,
			  .least = divide_up(part_keys, page_tok),
			  .share = per_block || b->shape.head_dim > 128 ?
					   0 :
					   divide_up(ATTEND_SHARE_KEYS, page_tok),
			  .cost = divide_up(PART_COST, page_tok),
			  .join = divide_up(PART_COST + JOIN_COST, page_tok) -
				  divide_up(PART_COST, page_tok) };

	plan_pass(&p, b, heads, per_block);
	if (p.n_whole && p.n_whole < 2 * p.n_slot && !b->skip.rows) {
		if (per_block) {
			p.room = EXECUTOR_WAVES * n_sm / p.n_whole;
			p.part = 1;
		} else {
			choose_part(&p, page_tok, known);
		}
		memset(p.at, 0, sizeof p.at);
		plan_pass(&p, b, heads, per_block);
	}
	if (tile) {
		rank_starts(p.at);
		p.tile = tile;
		plan_pass(&p, b, heads, per_block);
	}
	return p.n;
}

int attend_plan_rows(const struct attn_batch *b, int heads, struct attn_tile *tile)
{
	return plan_tiles(b, heads ? heads : b->shape.q_heads / b->shape.kv_heads, false, !heads,
			  tile);
}

int attend_plan_blocks(const struct attn_batch *b, int heads, struct attn_tile *tile)
{
	(void)heads; /* its lists are per head */
	return plan_tiles(b, 1, true, false, tile);
}

int attend_cut_tiles(const struct attn_batch *b)
{
	const int keys = b->keys.max_kv_blk * b->shape.page_tok;

	if (b->n_part)
		return b->n_tile <= ATTEND_CUT_TILES ? b->n_tile : 0;
	if (!b->n_sm || b->n_tile <= b->n_sm || b->shape.page_tok < ATTEND_ROWS ||
	    keys < 2 * ATTEND_LIST_KEYS)
		return 0;
	if (b->n_tile <= 2 * b->n_sm)
		return lesser(b->n_tile, ATTEND_CUT_TILES);
	return lesser(b->n_tile - b->n_sm, ATTEND_CUT_TILES);
}

/* ---- reference ---- */

enum { MAX_THREADS = 16 };

struct job {
	const struct attn_call *call;
	const struct attn_batch *b; /* of the call */
	const struct attn_tile *tile;
	int n_tile;
	const struct block_lists *lists;
	const struct piece_lists *pieces; /* NULL: lists */
	int dim, ld_dim, ld_key;	  /* head_dim, padded; page_tok, padded */
	int max_row;			  /* packed rows of a tile, padded */
	int n_seen;			  /* parts of decodes that skip */
	bool skips;
	atomic_int next; /* first tile nobody has taken */
};

/* Buffers of one thread.  Rows past the tile's, keys past the block's and channels past
 * head_dim are padding: computed, but part of no result. */
struct desk {
	struct job *job;
	float *q;	  /* [max_row][dim] */
	float *k;	  /* [dim][ld_key], transposed */
	float *v;	  /* [ld_key][ld_dim] */
	float *p;	  /* [max_row][ld_key], scores, then probabilities */
	float *o;	  /* [max_row][ld_dim] */
	float *max, *sum; /* [max_row] */
	float *loc;	  /* [max_row] the largest logit of the tile to be skipped or not */
	float *seen;	  /* [n_seen][max_row] the largest logits of parts so far */
	bool *skipped;	  /* [max_row] whether the row skips the tile */
};

static size_t desk_floats(const struct job *j)
{
	size_t row = (size_t)(j->dim + j->ld_key + j->ld_dim + j->n_seen + 4);

	return (size_t)j->max_row * row + (size_t)j->ld_key * (size_t)(j->dim + j->ld_dim);
}

static void desk_init(struct desk *d, struct job *j, float *mem)
{
	size_t row = (size_t)j->max_row, key = (size_t)j->ld_key;

	memset(mem, 0, desk_floats(j) * sizeof *mem);
	d->job = j;
	d->q = mem;
	d->k = d->q + row * (size_t)j->dim;
	d->v = d->k + key * (size_t)j->dim;
	d->p = d->v + key * (size_t)j->ld_dim;
	d->o = d->p + row * key;
	d->max = d->o + row * (size_t)j->ld_dim;
	d->sum = d->max + row;
	d->loc = d->sum + row;
	d->seen = d->loc + row;
	d->skipped = (bool *)(d->seen + row * (size_t)j->n_seen);
}

/* Load keys [key, key + n) of a request, all of one block, to place `to` and later. */
static void load_keys(struct desk *d, int page0, int head, int key, int n, int to)
{
	const struct job *j = d->job;
	const struct attn_shape *s = &j->b->shape;
	size_t page = (size_t)j->b->keys.page[page0 + key / s->page_tok];
	size_t off = ((page * (size_t)s->kv_heads + (size_t)head) * (size_t)s->page_tok +
		      (size_t)(key % s->page_tok)) *
		     (size_t)j->dim;
	const bf16_t *k = j->call->kv.k + off, *v = j->call->kv.v + off;

	multiply_transpose(d->k + to, j->ld_key, k, n, j->dim);
	for (int t = 0; t < n; t++)
		bf16_widen(d->v + (to + t) * j->ld_dim, v + t * j->dim, j->dim);
}

/* Online softmax of packed row i.  Scores of keys [from, n) of the block become probabilities.  The
 * block's other keys, of n_key in all, get 0.  Sums and outputs so far are rescaled.  A NaN score
 * makes all of them NaN. */
static void soften(struct desk *d, int i, int from, int n, int n_key)
{
	const struct job *j = d->job;
	float scale = 1 / sqrtf((float)j->dim), max = d->max[i], sum = 0, rescale;
	float *p = d->p + i * j->ld_key, *o = d->o + i * j->ld_dim;

	for (int t = from; t < n; t++) {
		p[t] *= scale;
		max = p[t] > max || isnan(p[t]) ? p[t] : max;
	}
	if (max == -INFINITY)
		n = from; /* all are hidden */
	for (int t = from; t < n; t++) {
		p[t] = expf(p[t] - max);
		sum += p[t];
	}
	for (int t = 0; t < n_key; t++)
		p[t] = t < from || t >= n ? 0 : p[t];
	if (n <= from || max == d->max[i]) {
		d->sum[i] += sum;
		return;
	}
	rescale = expf(d->max[i] - max);
	d->sum[i] = d->sum[i] * rescale + sum;
	d->max[i] = max;
	for (int c = 0; c < j->dim; c++)
		o[c] *= rescale;
}

/* Hide keys [0, n) of a block from packed row i, if they are at later positions than the row's.
 * key: the first one's index. */
static void hide_later(struct desk *d, const struct attn_tile *t, int i, int key, int n)
{
	const struct attn_batch *b = d->job->b;
	const int32_t *pos = b->keys.pos + (ptrdiff_t)t->page0 * b->shape.page_tok + key;
	int own = b->rows.own[t->row + i / t->n_head];

	for (int k = 0; k < n; k++)
		if (pos[k] > own)
			d->p[i * d->job->ld_key + k] = -INFINITY;
}

static size_t row_index(const struct job *j, const struct attn_tile *t, int i)
{
	return (size_t)(t->row + i / t->n_head) * (size_t)j->b->shape.q_heads +
	       (size_t)(t->head + i % t->n_head);
}

static void begin_tile(struct desk *d, const struct attn_tile *t)
{
	const struct job *j = d->job;
	const float *sink = j->call->sink;

	for (int i = 0; i < t->n_row * t->n_head; i++) {
		bf16_widen(d->q + i * j->dim, j->call->q + row_index(j, t, i) * (size_t)j->dim,
			   j->dim);
		d->max[i] = sink ? sink[t->head + i % t->n_head] : -INFINITY;
		d->sum[i] = sink ? 1 : 0;
	}
	memset(d->o, 0, (size_t)j->max_row * (size_t)j->ld_dim * sizeof *d->o);
	for (int i = 0; i < j->n_seen * j->max_row; i++)
		d->seen[i] = -INFINITY;
}

static void end_tile(struct desk *d, const struct attn_tile *t)
{
	const struct job *j = d->job;

	for (int i = 0; i < t->n_row * t->n_head; i++) {
		size_t row = row_index(j, t, i);
		bool none = d->max[i] == -INFINITY;

		for (int c = 0; c < j->dim; c++)
			j->call->out[row * (size_t)j->dim + (size_t)c] =
				none ? 0 : bf16_from_f32(d->o[i * j->ld_dim + c] / d->sum[i]);
		if (j->call->lse)
			j->call->lse[row] = none ? -INFINITY : d->max[i] + logf(d->sum[i]);
	}
}

/* The keys that a tile walks: runs of `run` keys in its blocks. */
struct walk {
	const uint16_t *list; /* NULL: every block */
	int page_tok, run;
	int first, n;	   /* runs [first, n) */
	int kv_head, last; /* position of the last row */
	int tile;	   /* runs of a tile that may be skipped */
	float below;
};

static struct walk walk_of(const struct job *j, const struct attn_tile *t)
{
	const struct attn_batch *b = j->b;
	const struct attn_shape *s = &b->shape;
	struct walk w = { .page_tok = s->page_tok,
			  .run = j->skips ? lesser(s->page_tok, b->skip.keys) : s->page_tok,
			  .kv_head = t->head / (s->q_heads / s->kv_heads),
			  .last = b->rows.pos[t->row + t->n_row - 1] };
	int per_block = s->page_tok / w.run;

	if (j->lists->block && t->list >= 0)
		w.list = j->lists->block + (size_t)t->list * (size_t)j->lists->stride;
	w.first = w.list ? 0 : first_block(b, t->row) * per_block;
	w.n = (w.list ? j->lists->n[t->list] : w.last / s->page_tok + 1) * per_block;
	if (j->skips) {
		w.tile = b->skip.keys / w.run;
		w.below = attn_skip_below(&b->skip, b->keys.len[t->req]);
	}
	return w;
}

/* The first key of run i. */
static int walk_key(const struct walk *w, int i)
{
	int at = i * w->run, blk = at / w->page_tok;

	return (w->list ? w->list[blk] : blk) * w->page_tok + at % w->page_tok;
}

/* Write the logits, before scaling, of the first n keys on the desk to d->p. */
static void score_keys(struct desk *d, int n_row, int n)
{
	const struct job *j = d->job;

	multiply(d->p, j->ld_key, d->q, j->dim, d->k, j->ld_key, n_row, n, j->dim, false);
}

/* Add their values, by the probabilities in d->p. */
static void add_values(struct desk *d, int n_row, int n)
{
	const struct job *j = d->job;

	multiply(d->o, j->ld_dim, d->p, j->ld_key, d->v, j->ld_dim, n_row, j->dim, n, true);
}

/* Load run i, and write its logits before scaling to d->p.  Returns its number of keys up to the
 * last row's position. */
static int load_run(struct desk *d, const struct attn_tile *t, const struct walk *w, int i)
{
	int key = walk_key(w, i), n = lesser(w->last - key + 1, w->run);

	if (n <= 0)
		return n;
	load_keys(d, t->page0, w->kv_head, key, n, 0);
	score_keys(d, t->n_row * t->n_head, n);
	return n;
}

/* ---- skipping ---- */

/* The largest logits of a tile that begins with run i. */
static void measure(struct desk *d, const struct attn_tile *t, const struct walk *w, int i)
{
	const struct job *j = d->job;
	const int32_t *pos = j->b->rows.pos + t->row;
	int n_row = t->n_row * t->n_head, end = lesser(i + w->tile, w->n);
	float scale = 1 / sqrtf((float)j->dim);

	for (int p = 0; p < n_row; p++)
		d->loc[p] = -INFINITY;
	for (; i < end; i++) {
		int n = load_run(d, t, w, i), key = walk_key(w, i);

		for (int p = 0; p < n_row; p++)
			for (int k = 0; k < lesser(n, pos[p / t->n_head] - key + 1); k++) {
				float x = d->p[p * j->ld_key + k] * scale;

				d->loc[p] = x > d->loc[p] || isnan(x) ? x : d->loc[p];
			}
	}
}

/* Count a tile of the head that begins with a key. */
static void count_tile(const struct attn_skip *s, int kv_head, bool skips)
{
	if (!s->count)
		return;
	__atomic_fetch_add(&s->count[2 * kv_head], 1, __ATOMIC_RELAXED);
	if (skips)
		__atomic_fetch_add(&s->count[2 * kv_head + 1], 1, __ATOMIC_RELAXED);
}

/* Let the rows of the tile vote, a group of rows together, whether they skip the keys that begin
 * with run i. */
static void vote(struct desk *d, const struct attn_tile *t, const struct walk *w, int i)
{
	const struct job *j = d->job;
	const struct attn_skip *s = &j->b->skip;
	int n_row = t->n_row * t->n_head, n_tile = divide_up(w->n, w->tile), tile = i / w->tile;
	int group = s->rows ? s->rows : n_row, n_part = s->rows ? 1 : lesser(j->n_seen, n_tile);
	float *seen = s->rows ? d->max : d->seen + tile % n_part * j->max_row;

	measure(d, t, w, i);
	for (int g = 0; g < n_row; g += group) {
		int end = lesser(g + group, n_row);
		bool skips = tile >= n_part;

		for (int p = g; p < end; p++)
			skips = skips && d->loc[p] - seen[p] < w->below;
		for (int p = g; p < end; p++) {
			d->skipped[p] = skips;
			if (!s->rows)
				seen[p] = fmaxf(seen[p], d->loc[p]);
		}
		if (walk_key(w, i) <= j->b->rows.pos[t->row + (end - 1) / t->n_head])
			count_tile(s, w->kv_head, skips);
	}
}

static void run_blocks(struct desk *d, const struct attn_tile *t)
{
	const struct job *j = d->job;
	const struct walk w = walk_of(j, t);
	const int32_t *pos = j->b->rows.pos + t->row;
	const int32_t *first = j->b->rows.first ? j->b->rows.first + t->row : NULL;
	int n_row = t->n_row * t->n_head, before = first_block(j->b, t->row) * w.page_tok;

	for (int i = w.first; i < w.n; i++) {
		int key = walk_key(&w, i), n;

		if (key < before)
			continue;
		if (j->skips && i % w.tile == 0)
			vote(d, t, &w, i);
		n = load_run(d, t, &w, i);
		if (n <= 0)
			break;
		for (int p = 0; p < n_row; p++) {
			int row = p / t->n_head, seen = lesser(pos[row] - key + 1, n);
			int from = first && first[row] > key ? first[row] - key : 0;

			if (j->b->keys.pos)
				hide_later(d, t, p, key, n);
			soften(d, p, d->skipped[p] ? n : from, seen, n);
		}
		add_values(d, n_row, n);
	}
}

/* ---- piece lists ---- */

/* Hide n keys, of pieces whose first has mask[0], from packed row i unless its head sees them. */
static void hide_pieces(struct desk *d, const uint16_t *mask, int i, int n)
{
	for (int k = 0; k < n; k++)
		if (!(mask[k / d->job->pieces->tok] >> i & 1))
			d->p[i * d->job->ld_key + k] = -INFINITY;
}

/* Load pieces [i, stop) of the tile's list side by side.  Returns the number of their keys. */
static int load_pieces(struct desk *d, const struct attn_tile *t, int i, int stop)
{
	const struct piece_lists *l = d->job->pieces;
	const struct attn_shape *s = &d->job->b->shape;
	const int32_t *piece = l->piece + (size_t)t->list * (size_t)l->stride;
	int kv_head = t->head / (s->q_heads / s->kv_heads), n = 0;

	for (; i < stop; i++) {
		int key = piece[i] * l->tok, n_key = lesser(t->pos - key + 1, l->tok);

		load_keys(d, t->page0, kv_head, key, n_key, n);
		n += n_key;
	}
	return n;
}

/* One row under piece lists, page_tok keys at a time.  So the list of all pieces gives the bits of
 * attention to every block. */
static void run_pieces(struct desk *d, const struct attn_tile *t)
{
	const struct piece_lists *l = d->job->pieces;
	const uint16_t *mask = l->mask ? l->mask + (size_t)t->list * (size_t)l->stride : NULL;
	int at_once = d->job->b->shape.page_tok / l->tok;

	for (int i = 0; i < l->n[t->list]; i += at_once) {
		int n = load_pieces(d, t, i, lesser(i + at_once, l->n[t->list]));

		score_keys(d, t->n_head, n);
		for (int p = 0; p < t->n_head; p++) {
			if (mask)
				hide_pieces(d, mask + i, p, n);
			soften(d, p, 0, n, n);
		}
		add_values(d, t->n_head, n);
	}
}

/* ---- tiles ---- */

static void run_tile(struct desk *d, const struct attn_tile *t)
{
	begin_tile(d, t);
	if (d->job->pieces)
		run_pieces(d, t);
	else
		run_blocks(d, t);
	end_tile(d, t);
}

static void *attend_thread(void *arg)
{
	struct desk *d = arg;
	struct job *j = d->job;
	int i;

	while ((i = atomic_fetch_add(&j->next, 1)) < j->n_tile)
		run_tile(d, &j->tile[i]);
	return NULL;
}

/* The calling thread works too, so a thread that cannot be started is no error. */
static void run_all(struct desk *desk, int n)
{
	pthread_t thread[MAX_THREADS];
	int started = 1;

	while (started < n &&
	       !pthread_create(&thread[started], NULL, attend_thread, &desk[started]))
		started++;
	attend_thread(&desk[0]);
	for (int i = 1; i < started; i++)
		pthread_join(thread[i], NULL);
}

/* j: the call and its lists. */
static enum ar_status run_job(struct job j, attend_plan_fn *plan_fn, int heads, struct ar_err *err)
{
	const struct attn_batch *b = j.call->b;
	enum ar_status st = AR_OK;
	struct attn_batch whole = *b;
	struct attn_tile *tile = NULL;
	struct desk desk[MAX_THREADS];
	float *mem = NULL;
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	j.b = b;
	whole.n_sm = 0;
	j.n_tile = plan_fn(&whole, heads, NULL);
	if (!j.n_tile)
		return AR_OK;
	tile = malloc((size_t)j.n_tile * sizeof *tile);
	if (!tile)
		return ar_nomem(err);
	plan_fn(&whole, heads, tile);
	j.tile = tile;
	j.dim = b->shape.head_dim;
	j.skips = attend_skips(j.call);
	if (j.skips && !b->skip.rows)
		j.n_seen = b->skip.parts > 1 ? b->skip.parts : 1;
	j.ld_dim = multiply_pad(j.dim, MULTIPLY_LANES);
	j.ld_key = multiply_pad(b->shape.page_tok, MULTIPLY_LANES);
	for (int i = 0; i < j.n_tile; i++)
		if (tile[i].n_row * tile[i].n_head > j.max_row)
			j.max_row = multiply_pad(tile[i].n_row * tile[i].n_head, MULTIPLY_ROWS);
	n = n > MAX_THREADS ? MAX_THREADS : n < 1 ? 1 : n;
	n = n > j.n_tile ? j.n_tile : n;
	mem = malloc((size_t)n * desk_floats(&j) * sizeof *mem);
	if (!mem) {
		st = ar_nomem(err);
		goto out;
	}
	for (long i = 0; i < n; i++)
		desk_init(&desk[i], &j, mem + (size_t)i * desk_floats(&j));
	run_all(desk, (int)n);
out:
	free(mem);
	free(tile);
	return st;
}

enum ar_status attend_ref(const struct attn_call *call, attend_plan_fn *plan, int heads,
			  const struct block_lists *lists, struct ar_err *err)
{
	return run_job((struct job){ .call = call, .lists = lists }, plan, heads, err);
}

enum ar_status decode_pieces_ref(const struct attn_call *call, const struct piece_lists *lists,
				 struct ar_err *err)
{
	return run_job((struct job){ .call = call, .pieces = lists }, attend_plan_rows,
		       lists->heads, err);
}
