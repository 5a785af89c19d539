/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": the real kernels, on one stream of one GPU.
 *
 * An iteration copies the batch's arrays to the device once, launches all kernels, and waits once
 * at the end.  Nothing in between allocates or synchronises.  Its cost is the span of its traced
 * kernels or, without a tracer, the time between two CUDA events.  If only n of N layers are
 * executed, everything but the head is scaled by N / n.
 *
 * An iteration of decodes only runs from CUDA graphs.  As in engines, its batch is padded to one of
 * a few sizes.  Its cost is the cost of the padded batch.  There are several graphs, because a
 * tracer makes launching slow: the GPU runs the layers of one while the host launches the next,
 * which has twice as many.  A batch of few tokens with a prompt among them is padded, too: engines
 * run its parts between attention calls from graphs.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"
#include "replay/engine/kernel_cost.h"
#include "replay/ranks/again.h"
#include "replay/ranks/world.h"

#include <assert.h>
#include <math.h>
#include <time.h>

#include "base/log.h"

enum { HOLD_NS = 20000000 };

#define SEEN_SHARE 0.6 /* of the time of graphs: then the tracer reads what has ended */
#define FAST_PACE 0.75 /* of learn_pace(): less than 1, as it may change */

/* clang-format off */
static const struct opt cuda_options[] = {
	{ .name = "device", .type = OPT_INT, .off = offsetof(struct cuda_opts, device),
	  .arg = "N", .def = "0", .min = 0, .max = 1023, .help = "index of the GPU to use" },
	{ .name = "enforce-eager", .type = OPT_FLAG,
	  .off = offsetof(struct cuda_opts, enforce_eager),
	  .help = "run without CUDA graphs; if not given, iterations of decodes only are padded "
		  "and run from graphs, and small ones with prompts are padded" },
	{ .name = "cudagraph-capture-sizes", .type = OPT_STR,
	  .off = offsetof(struct cuda_opts, capture_sizes), .arg = "LIST",
	  .help = "numbers of rows that batches are padded to, such as 1,2,4,8; if not given, "
		  "those of vLLM, up to the engine's largest" },
	{ 0 }
};
/* clang-format on */

/* ---- iterations ---- */

enum ar_status cuda_wait(struct cuda *c, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (c->env.world)
		return world_wait(c->env.world, c->device.stream, err);
	CU(cudaStreamSynchronize(c->device.stream));
out:
	return st;
}

static bool only_decodes(const struct batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->entry[i].kind != ROW_DECODE)
			return false;
	return true;
}

/* Number of rows of the CUDA graph that runs b; 0: b runs without a graph. */
static int graph_rows(const struct cuda_pass *p, const struct batch *b)
{
	int n = graph_sizes_fit(&p->sizes, (int64_t)b->n);

	if (!only_decodes(b))
		return 0;
	return n < p->graphs[0].max_row ? n : p->graphs[0].max_row;
}

/* Number of rows to pad a batch with prompts to; 0: none.  An engine runs the parts of such a batch
 * between attention calls from CUDA graphs.  Where rows are dropped, it does not. */
static int piece_rows(const struct cuda *c, const struct batch *b)
{
	int64_t n = 0;

	if (c->engine.drops.n > 1)
		return 0;
	for (size_t i = 0; i < b->n; i++)
		n += b->entry[i].n_tok;
	return graph_sizes_fit(&c->pass.sizes, n);
}

/* The first executed layer of graph k, which has twice the layers of the one before.  Of few layers
 * a graph has none.  k CUDA_GRAPHS: what follows the head. */
static int graph_from(const struct cuda *c, int k)
{
	const int n = c->env.n_run_layers, parts = (1 << CUDA_GRAPHS) - 1;

	return k < CUDA_GRAPHS ? (n * ((1 << k) - 1) + parts - 1) / parts : n + 1;
}

enum ar_status cuda_stage(struct cuda *c, const struct batch *b, const struct row_segment *segment,
			  const struct method *m, int graph, int pad, struct ar_err *err)
{
	size_t used = 0;
	enum ar_status st = graph ? rows_build_decodes(&c->pass.host, &c->pass.rows, b, segment,
						       graph, &used, err) :
				    rows_build(&c->pass.host, &c->pass.rows, b, segment, m, pad,
					       &used, err);

	if (st)
		return st;
	CU(cudaMemcpyAsync(c->pass.rows_dev, c->pass.rows.mem, used, cudaMemcpyHostToDevice,
			   c->device.stream));
	row_set_at(&c->pass.dev, &c->pass.host, c->pass.rows.mem, c->pass.rows_dev);
out:
	return st;
}

struct attn_call cuda_call(const struct cuda *c, const struct rows *r, enum row_kind kind, int i)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	ptrdiff_t at = (ptrdiff_t)rows_before(r, kind) * g->shape.q_heads * g->shape.head_dim;

	return (struct attn_call){ .b = &r->part[kind],
				   .layer = c->env.run_layer[i],
				   .q = c->pass.q + at,
				   .kv = c->pass.kv[i],
				   .layout = g->layout,
				   .state = groups_state(g, c->pass.state[i], (size_t)g->n_page + 1,
							 kind),
				   .prune_state = groups_state(g, c->pass.state[i],
							       (size_t)g->n_page + 1, STATE_PRUNE),
				   .lists = c->pass.lists,
				   .sink = attn_engine_sink(&c->engine, c->pass.sink, i),
				   .out = c->pass.out + at,
				   .work = c->pass.work,
				   .stream = c->device.stream };
}

/* The rows of executed layer i are in the cache: show them to the selector of decodes. */
static enum ar_status cuda_append(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct method_part *p = &attn_engine_method(&c->engine, i)->part[ROW_DECODE];
	const struct attn_call own = cuda_call(c, r, ROW_DECODE, i);
	bool states = own.state || own.prune_state;
	/* no key is taken back, and none comes without being shown */
	bool steady = !c->pass.rows.limit[ROW_VERIFY].max_row && !c->pass.rows.revives;
	enum ar_status st = AR_OK;

	for (int k = 0; states && k < ROW_REVIVED && !st; k++) {
		struct attn_call call = cuda_call(c, r, k, i);

		call.state = own.state;
		call.next = k == ROW_DECODE && steady;
		if (rows_count(r, k))
			st = method_append(p, &call, prof_phase, c->env.prof, err);
	}
	return st;
}

/* The same, with tokens of shared pages that the batch writes.  Their states are made before they
 * are copied.  Rows come again, as a piece may have copied keys and keys of theirs. */
static enum ar_status append_shared(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const bool late = cuda_is_late(c);
	enum ar_status st = late ? cuda_share_late(c, i, false, err) : AR_OK;

	if (!st)
		st = cuda_append(c, i, r, err);
	if (!st && late)
		st = cuda_share_late(c, i, true, err);
	return st || !late ? st : cuda_append(c, i, r, err);
}

enum ar_status cuda_make_qkv(struct cuda *c, int i, const struct rows *r, bool store,
			     struct ar_err *err)
{
	const struct qkv out = { c->pass.q, c->pass.k, store ? &c->pass.kv[i] : NULL };
	struct layer_qkv product;
	enum ar_status st;

	if (c->decoder)
		product = decoder_product(c->decoder, i);
	st = c->engine.act->qkv(c->engine.act_self, i, r->row, r->n_row,
				c->decoder ? &product : NULL, &out, err);
	return st || !store ? st : append_shared(c, i, r, err);
}

/* Decodes without lists may start while chunks end: see attn_call.beside. */
static enum ar_status cuda_attend(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	enum ar_status st = AR_OK;

	for (int k = 0; k < ROW_KINDS && !st; k++) {
		struct attn_call call = cuda_call(c, r, k, i);

		call.beside = k == ROW_DECODE && m->part[k].dense && rows_count(r, ROW_PREFILL);
		if (call.beside)
			call.work = c->pass.beside;
		if (rows_count(r, k))
			st = method_enqueue(&m->part[k], &call, prof_phase, c->env.prof, err);
	}
	return st;
}

enum ar_status cuda_mix(struct cuda *c, int i, const struct rows *r, bool store, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (c->decoder)
		st = decoder_before(c->decoder, i, c->env.run_layer[i], err);
	if (st || cuda_skips(c, i))
		return st;
	if (!mixer_attends(attn_engine_mixer(&c->engine, i)))
		return cuda_mix_linear(c, i, r, err);
	st = cuda_make_qkv(c, i, r, store, err);
	if (!st && store)
		st = cuda_evict_see(c, i, r, err);
	return st ? st : cuda_attend(c, i, r, err);
}

/* Whether the dropper of executed layer i acts between the halves of decoder_after(). */
static bool splits(const struct drop *drop)
{
	return drop && drop->dropper->place == DROP_BEFORE_MLP;
}

enum ar_status cuda_until_drop(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	int layer = c->env.run_layer[i];

	if (!c->decoder)
		return AR_OK;
	return splits(cuda_drop_at(c, i, r)) ?
		       decoder_project(c->decoder, i, layer, c->pass.out, err) :
		       decoder_after(c->decoder, i, layer, c->pass.out, err);
}

enum ar_status cuda_after_drop(struct cuda *c, int i, int n_keep, struct ar_err *err)
{
	enum ar_status st = c->decoder ? cuda_keep_rows(c, i, n_keep, err) : AR_OK;

	return st || !c->decoder || !splits(attn_engine_drop(&c->engine, i)) ?
		       st :
		       decoder_mlp(c->decoder, i, c->env.run_layer[i], err);
}

enum ar_status cuda_pass_drop(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	bool revives = c->engine.drops.revives && c->decoder;
	enum ar_status st = revives ? cuda_put_aux(c, i, r, err) : AR_OK;

	if (!st && (!revives || rows_count(r, ROW_PREFILL)))
		st = cuda_after_drop(c, i, cuda_kept(c, i, r), err);
	return st || !revives ? st : cuda_take_aux(c, i, r, err);
}

/* Enqueue the steps after the mixer of executed layer i.  The layer's dropper, if any, drops
 * rows. */
static enum ar_status cuda_finish(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	enum ar_status st = cuda_until_drop(c, i, r, err);

	if (st || !cuda_drop_at(c, i, r))
		return st;
	st = cuda_drop_rows(c, i, r, err);
	return st ? st : cuda_pass_drop(c, i, r, err);
}

/* hold_gpu() has ended, or ends now. */
static void release_gpu(struct cuda_clock *t)
{
	if (*t->go != LAYER_HOLD_OVER)
		*t->go = 1;
}

/* As in struct prof_kernel. */
static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Executed layers [from, to) have been enqueued.  Layer n_run_layers is the head.  ahead: the
 * number of layers that the GPU may start with. */
static void enqueued(struct cuda_clock *clock, int from, int to, int ahead)
{
	const int64_t now = now_ns();

	for (int i = from; i < to; i++)
		clock->enqueued_ns[i] = now;
	if (clock->early && to == ahead)
		release_gpu(clock);
}

/* Events: begin, layers, head, end. */
enum ar_status cuda_enqueue(struct cuda *c, const struct row_set *set, int from, int to,
			    unsigned flags, struct ar_err *err)
{
	int n = c->env.n_run_layers;
	const struct rows *last = row_set_of(set, n - 1);
	enum ar_status st = AR_OK;

	if (!from)
		CU(cudaEventRecordWithFlags(c->clock.begin, c->device.stream, flags));
	if (!from && flags == cudaEventRecordDefault)
		st = cuda_share_early(c, err);
	if (!st && !from && c->decoder)
		st = decoder_enter(c->decoder, err);
	for (int i = from; i < to && i < n && !st; i++) {
		const struct rows *r = row_set_of(set, i);

		st = cuda_bring_back(c, i, r, err);
		if (!st)
			st = cuda_mix(c, i, r, true, err);
		if (!st)
			st = cuda_finish(c, i, r, err);
		enqueued(&c->clock, i, i + 1, CUDA_AHEAD);
	}
	if (st || to <= n)
		return st;
	CU(cudaEventRecordWithFlags(c->clock.head, c->device.stream, flags));
	if (c->decoder)
		st = decoder_head(c->decoder, last->emit, last->n_emit, err);
	enqueued(&c->clock, n, n + 1, CUDA_AHEAD);
	if (!st)
		CU(cudaEventRecordWithFlags(c->clock.end, c->device.stream, flags));
out:
	return st;
}

enum ar_status cuda_begin(struct cuda *c, struct ar_err *err)
{
	const struct rows *r = row_set_of(&c->pass.dev, 0);

	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	return c->decoder ? decoder_begin(c->decoder, r->row, r->n_row, err) : AR_OK;
}

enum ar_status cuda_enter(struct cuda *c, struct ar_err *err)
{
	enum ar_status st = cuda_begin(c, err);

	return st || !c->decoder ? st : decoder_enter(c->decoder, err);
}

/* Fill executed layer i, see fill_entry().  With weights the whole layer runs, because the layers
 * above need its output. */
static enum ar_status fill_layer(struct cuda *c, int i, bool held, struct ar_err *err)
{
	const struct rows *r = row_set_of(&c->pass.dev, i);
	enum ar_status st;

	if (c->env.weights) {
		st = cuda_mix(c, i, r, !held, err);
		return st ? st : cuda_finish(c, i, r, err);
	}
	if (!mixer_attends(attn_engine_mixer(&c->engine, i)))
		return AR_OK;
	st = cuda_make_qkv(c, i, r, !held, err);
	if (!st && !held)
		st = cuda_evict_see(c, i, r, err);
	return st || !cuda_call(c, r, ROW_PREFILL, i).state ? st : cuda_attend(c, i, r, err);
}

/* Bring the tokens of entry e into the cache, outside of any timed region.  A selector with state
 * beside the pages must process them, too.  It must do so even if decodes have already stored their
 * K and V.  The state of a linear layer is not updated: it comes from random hidden states. */
static enum ar_status fill_entry(struct cuda *c, const struct batch_entry *e, struct ar_err *err)
{
	struct batch_entry one = *e;
	bool held = blocks_hold(c->env.blocks, e);
	enum ar_status st = blocks_place(c->env.blocks, e, err);

	if (!st)
		st = cuda_stage(c,
				&(struct batch){ .entry = &one, .n = 1, .blocks = c->env.blocks },
				NULL, NULL, 0, 0, err);
	if (!st && c->env.weights)
		st = cuda_enter(c, err);
	for (int i = 0; i < c->env.n_run_layers && !st; i++)
		st = fill_layer(c, i, held, err);
	if (!st && !held)
		st = cuda_evict_commit(c, false, err);
	if (st)
		return st;
	c->clock.stale = true;
	return cuda_wait(c, err);
}

/* Find the tokens that e needs in shared pages, compute those that are not there, and make room for
 * its own. */
static enum ar_status fill_missing(struct cuda *c, const struct batch_entry *e, struct ar_err *err)
{
	struct batch_entry piece;
	enum ar_status st = blocks_hit(c->env.blocks, e, err);

	while (!st &&
	       blocks_missing(c->env.blocks, e, c->pass.rows.limit[ROW_PREFILL].max_row, &piece))
		st = fill_entry(c, &piece, err);
	return st ? st : blocks_place(c->env.blocks, e, err);
}

/* Run the dropper that ends segment s, and fill the next segment. */
static enum ar_status drop_segment(struct cuda *c, const struct batch *b, int s, struct ar_err *err)
{
	int i = attn_engine_drop_layer(&c->engine, s);
	const struct rows *r = row_set_of(&c->pass.dev, i);
	enum ar_status st;

	if (only_decodes(b) && !c->engine.drops.revives) {
		drops_apply(&c->engine.drops, b, s, NULL);
		return AR_OK;
	}
	st = cuda_stage(c, b, drops_segments(&c->engine.drops), NULL, 0, 0, err);
	if (st)
		return st;
	c->clock.stale = true;
	st = c->env.weights ? cuda_reach_drop(c, s, err) : cuda_make_qkv(c, i, r, true, err);
	if (!st)
		st = cuda_drop_rows(c, i, r, err);
	return st ? st : cuda_read_drops(c, b, s, r, err);
}

/* Find the rows of b in each segment of layers, and give its requests pages for them. */
static enum ar_status find_segments(struct cuda *c, const struct batch *b, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	drops_begin(d, b);
	if (d->n > 1)
		st = cuda_stage_chunks(c, err);
	for (int s = 0; s < d->n && !st; s++) {
		st = drops_grow(d, c->env.blocks, b, s, err);
		if (!st && s < d->n - 1)
			st = drop_segment(c, b, s, err);
	}
	return st;
}

static enum ar_status enqueue_all(struct cuda *c, const struct row_set *set, struct ar_err *err)
{
	return cuda_enqueue(c, set, 0, c->env.n_run_layers + 1, cudaEventRecordDefault, err);
}

struct pass {
	struct cuda *c;
	const struct row_set *set;
	int from, to;
};

/* cudaEventRecordExternal makes the events nodes of the graph: each launch records them. */
static enum ar_status enqueue_pass(void *ctx, struct ar_err *err)
{
	const struct pass *p = ctx;
	enum ar_status st = cuda_enqueue(p->c, p->set, p->from, p->to, cudaEventRecordExternal,
					 err);

	prof_phase(p->c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	return st;
}

/* Launch the graphs of n_row rows. */
static enum ar_status launch_graphs(struct cuda *c, int n_row, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int k = 0; k < CUDA_GRAPHS && !st; k++) {
		const int from = graph_from(c, k), to = graph_from(c, k + 1);

		if (from == to)
			continue;
		st = graphs_launch(&c->pass.graphs[k], n_row, c->device.stream, err);
		enqueued(&c->clock, from, to, graph_from(c, 1));
	}
	return st;
}

/* Capture the CUDA graphs of this number of rows and run them once, outside of any timed region.
 * The pass before it makes libraries load their code, which a capture must not.  Both write only
 * values that the iteration writes again. */
static enum ar_status make_graphs(struct cuda *c, const struct row_set *set, struct ar_err *err)
{
	int n_row = row_set_of(set, 0)->n_row;
	enum ar_status st = cuda_begin(c, err);

	if (!st)
		st = enqueue_all(c, set, err);
	if (!st)
		st = cuda_begin(c, err);
	for (int k = 0; k < CUDA_GRAPHS && !st; k++) {
		struct pass part = { c, set, graph_from(c, k), graph_from(c, k + 1) };

		if (part.from < part.to)
			st = graphs_capture(&c->pass.graphs[k], n_row, enqueue_pass, &part,
					    c->device.stream, err);
	}
	if (!st)
		st = launch_graphs(c, n_row, err);
	c->clock.stale = true;
	return st;
}

/* Drop traced kernels that belong to no iteration. */
static enum ar_status discard(struct cuda *c, struct ar_err *err)
{
	const struct prof_kernel *kernel;
	enum ar_status st = AR_OK;
	size_t n;

	if (!c->env.prof || !c->clock.stale)
		return AR_OK;
	st = cuda_wait(c, err);
	c->clock.stale = false;
	return st ? st : prof_collect(c->env.prof, &kernel, &n, err);
}

/* ---- runs ---- */

/* Make the GPU wait until release_gpu().  So the time of the host and its tracer is not measured.
 * The wait ends after HOLD_NS, as the launch queue is finite. */
static enum ar_status hold_gpu(struct cuda *c, struct ar_err *err)
{
	enum ar_status st;

	*c->clock.go = 0;
	prof_phase(c->env.prof, CUDA_HOLD, PHASE_NONE);
	st = layer_hold(c->clock.go, HOLD_NS, c->device.stream, err);
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	return st;
}

/* The other ranks have enqueued all, too. */
static enum ar_status meet(struct cuda *c, struct ar_err *err)
{
	return c->env.world ?
		       world_reduce(c->env.world, c->clock.barrier, 1, c->device.stream, err) :
		       AR_OK;
}

/* Enqueue two barriers in a row, and events around the second. */
static enum ar_status enqueue_barriers(struct cuda *c, struct ar_err *err)
{
	enum ar_status st = hold_gpu(c, err);

	if (!st)
		st = meet(c, err);
	if (!st)
		CU(cudaEventRecord(c->clock.begin, c->device.stream));
	if (!st)
		st = meet(c, err);
	if (!st)
		CU(cudaEventRecord(c->clock.end, c->device.stream));
out:
	return st;
}

/* *ns: -1 where the GPU waited for the host. */
static enum ar_status time_barrier(struct cuda *c, int64_t *ns, struct ar_err *err)
{
	enum ar_status st = enqueue_barriers(c, err);
	const bool late = *c->clock.go == LAYER_HOLD_OVER;
	float ms = 0;

	release_gpu(&c->clock);
	if (!st)
		st = cuda_wait(c, err);
	if (!st)
		CU(cudaEventElapsedTime(&ms, c->clock.begin, c->clock.end));
	*ns = late ? -1 : (int64_t)((double)ms * 1e6);
out:
	return st;
}

static enum ar_status cuda_barriers(void *self, int n, int64_t *ns, struct ar_err *err)
{
	struct cuda *c = self;
	enum ar_status st = AR_OK;

	c->clock.stale = true;
	for (int i = 0; i < n && !st; i++)
		st = time_barrier(c, &ns[i], err);
	return st;
}

/* What run_staged() runs, and where it puts the cost. */
struct staged {
	struct cuda *c;
	const struct row_set *set;
	int pad;
	struct iter_cost *cost;
};

/* Wait until a time, or until the GPU has run all: rows may take less long than those before. */
static void wait_while_running(const struct cuda *c, int64_t until)
{
	while (now_ns() < until && cudaStreamQuery(c->device.stream) == cudaErrorNotReady)
		;
	cudaGetLastError(); /* what is not ready is no error */
}

/* Wait for the rows that run.  Where they run from the same graphs as those before, let the tracer
 * see the first kernels meanwhile. */
static enum ar_status wait_traced(struct cuda *c, int pad, struct ar_err *err)
{
	struct cuda_clock *t = &c->clock;
	const int64_t from = t->enqueued_ns[0];
	enum ar_status st;

	if (pad && pad == t->ran_rows && t->early) {
		wait_while_running(c, from + (int64_t)(SEEN_SHARE * (double)t->ran_ns));
		prof_ahead(c->env.prof);
	}
	st = cuda_wait(c, err);
	t->ran_rows = pad;
	t->ran_ns = now_ns() - from;
	return st;
}

/* Run staged rows and get their kernels; see again_fn.  Unless they are enqueued as a whole, the
 * GPU starts when CUDA_AHEAD layers, or all of the first graph, are. */
static enum ar_status run_staged(void *ctx, bool whole, bool *late, struct ar_err *err)
{
	const struct staged *s = ctx;
	struct cuda *c = s->c;
	enum ar_status st = discard(c, err);

	c->clock.early = !whole && c->env.prof &&
			 row_set_of(s->set, 0)->n_row > c->clock.held_rows[s->pad > 0];
	if (!st)
		st = cuda_begin(c, err);
	if (st)
		return st;
	st = hold_gpu(c, err);
	if (!st)
		st = meet(c, err);
	if (!st && s->pad)
		st = cuda_share_early(c, err);
	if (!st)
		st = s->pad ? launch_graphs(c, s->pad, err) : enqueue_all(c, s->set, err);
	*late = *c->clock.go == LAYER_HOLD_OVER;
	release_gpu(&c->clock);
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	if (st)
		return st;
	st = wait_traced(c, s->pad, err);
	if (!st)
		st = cuda_collect(c, s->cost, err);
	*late |= !st && c->clock.early && cuda_starved(c, s->cost);
	return st;
}

/* Return the host's time to enqueue, as a share of the time that it has.  Layers one by one (pad 0)
 * have half of gpu_ns, the GPU's time for all of them.  A graph has the GPU's time for the graph
 * before it.  The largest share of the graphs counts. */
static double pace_of(const struct cuda *c, int pad, int64_t gpu_ns)
{
	const int64_t *at = c->clock.enqueued_ns;
	const int n = c->env.n_run_layers;
	double most = pad ? 0 : 2 * (double)(at[n] - at[0]) / (double)gpu_ns;

	for (int k = 1; pad && k < CUDA_GRAPHS; k++) {
		const int before = graph_from(c, k - 1), from = graph_from(c, k);

		if (before < from)
			most = fmax(most, (double)(at[from] - at[before]) * n /
						  ((double)gpu_ns * (from - before)));
	}
	return most;
}

/* Remember batches that the GPU runs before the host has enqueued the rest: they are enqueued as a
 * whole.  Forget those that it does not: the host may have been busy with something else.  The
 * batch was enqueued as a whole. */
static void learn_pace(struct cuda *c, int n_row, int pad, const struct iter_cost *cost)
{
	int *held = &c->clock.held_rows[pad > 0];
	double pace;

	if (!cost->n_kernel)
		return;
	pace = pace_of(c, pad, cost->kernel[cost->n_kernel - 1].end_ns - cost->kernel[0].start_ns);
	if (pace > 1 && n_row > *held)
		*held = n_row;
	else if (pace < FAST_PACE && n_row <= *held)
		*held = n_row - 1;
}

/* Run the staged rows; if the host was late, run them again, enqueued as a whole.  A library that
 * loads code for a new shape stalls the GPU, which is no cost of the batch.  Both runs write the
 * same. */
static enum ar_status run_in_time(struct cuda *c, const struct row_set *set, int pad,
				  struct iter_cost *cost, struct ar_err *err)
{
	struct staged s = { c, set, pad, cost };
	int n_row = row_set_of(set, 0)->n_row;
	bool again;
	enum ar_status st = again_if_late(c->env.world, run_staged, &s, &c->clock.slow_host, &again,
					  err);

	if (!st && again)
		log_info("the host was late, so %d rows ran again", n_row);
	if (!st && !c->clock.early)
		learn_pace(c, n_row, pad, cost);
	return st;
}

/* See run_batch(); the tables may change. */
static enum ar_status run_placed(struct cuda *c, const struct batch *b, int pad,
				 struct iter_cost *cost, struct ar_err *err)
{
	struct iter_cost x = { .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	enum ar_status st = attn_engine_check(&c->engine, b, err);

	c->pass.compared.at = -1;
	c->pass.share.n = c->pass.share.n_early = 0;
	evictions_before(&c->evict.list, b);
	if (!st)
		st = cuda_evict(c, err);
	for (size_t i = 0; i < b->n && !st; i++)
		st = fill_missing(c, &b->entry[i], err);
	if (!st)
		st = find_segments(c, b, err);
	if (!st)
		st = cuda_stage(c, b, drops_segments(&c->engine.drops), NULL, pad, piece_rows(c, b),
				err);
	if (!st)
		st = cuda_stage_share(c, pad, err);
	if (!st)
		st = cuda_evict_begin(c, b, err);
	if (!st && pad && !c->pass.graphs[CUDA_GRAPHS - 1].exec[pad])
		st = make_graphs(c, &c->pass.dev, err);
	if (!st)
		st = run_in_time(c, &c->pass.dev, pad, &x, err);
	if (!st)
		st = cuda_event_cost(c, &x, err);
	if (!st && x.n_kernel)
		kernel_cost(&x, c->env.model->n_layers, c->env.n_run_layers);
	if (!st)
		st = cuda_evict_commit(c, true, err);
	evictions_after(&c->evict.list, b);
	if (!st)
		st = cuda_evict(c, err);
	if (st)
		return st;
	cuda_evict_cost(c, &x);
	attn_engine_tally(&c->engine, b);
	attn_engine_count_scores(&c->engine, &c->pass.host);
	st = drops_end(&c->engine.drops, err);
	if (st)
		return st;
	drops_cost(&c->engine.drops, &x);
	*cost = x;
	return AR_OK;
}

/* Run b.  pad: number of rows of its CUDA graph, or 0. */
static enum ar_status run_batch(struct cuda *c, const struct batch *b, int pad,
				struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st;

	blocks_begin(c->env.blocks);
	st = run_placed(c, b, pad, cost, err);
	blocks_end(c->env.blocks);
	return st;
}

static enum ar_status cuda_run(void *self, const struct batch *b, struct iter_cost *cost,
			       struct ar_err *err)
{
	struct cuda *c = self;
	int pad = graph_rows(&c->pass, b);
	enum ar_status st;

	if (!b->n) {
		*cost = (struct iter_cost){ .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
		return AR_OK;
	}
	st = run_batch(c, b, pad, cost, err);
	return st || !c->env.weights ? st : cuda_put_logits(c, b, pad, err);
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Launch every kernel before the first iteration: run two chunks and a decode of request 0. */
static enum ar_status warm_up(struct cuda *c, struct ar_err *err)
{
	int64_t most = lesser(c->env.max_len,
			      c->pass.rows.limit[ROW_PREFILL].max_page * c->engine.plan.page_tok);
	uint32_t last = c->engine.drops.n ==
			1; /* the decode repeats a token; none that is dropped */
	int64_t tok = lesser(most, c->engine.act->n_tok(c->engine.act_self, 0));
	uint32_t n = (uint32_t)lesser(c->env.max_batched_tok, (tok - !last) / 2);
	struct batch_entry e[] = {
		{ .start = 0, .n_tok = n, .known = 2 * n },
		{ .start = n, .n_tok = n, .known = 2 * n, .n_emit = 1 },
		{ .start = 2 * n - last,
		  .n_tok = 1,
		  .known = 2 * n,
		  .kind = ROW_DECODE,
		  .n_emit = 1 },
	};
	struct iter_cost unused;
	enum ar_status st = AR_OK;

	for (int i = 0; n && i < 3 && !st; i++) {
		const struct batch b = { .entry = &e[i], .n = 1, .blocks = c->env.blocks };

		st = run_batch(c, &b, graph_rows(&c->pass, &b), &unused, err);
	}
	if (!st)
		st = cuda_evict_warm(c, 2 * (int)n, err);
	blocks_leave(c->env.blocks, 0);
	drops_forget(&c->engine.drops, 0);
	attn_engine_forget(&c->engine);
	return st;
}

static enum ar_status cuda_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct cuda *c = self;
	enum ar_status st = cuda_take_pool(c, num_blocks, err);

	return st || !c->env.trace->n ? st : warm_up(c, err);
}

static void cuda_layer_work(const void *self, int i, struct layer_work *out)
{
	attn_engine_work(&((const struct cuda *)self)->engine, i, out);
}

static void cuda_drop(void *self, uint32_t req)
{
	struct cuda *c = self;

	drops_forget(&c->engine.drops, req);
	cuda_evict_drop(c, req);
}

/* NCCL ends when no graph has its kernels. */
static void cuda_leave(void *self)
{
	struct cuda *c = self;

	for (int i = 0; i < CUDA_GRAPHS; i++)
		graphs_release(&c->pass.graphs[i]);
}

static const struct store_gpu *cuda_gpu(void *self)
{
	struct cuda *c = self;

	return &c->device.gpu;
}

static int64_t cuda_max_captured(void *self)
{
	const struct cuda *c = self;

	return c->pass.sizes.n ? c->pass.sizes.size[c->pass.sizes.n - 1] : 0;
}

const struct backend backend_cuda = {
	.name = "cuda",
	.title = "random weights or --weights, experts loaded evenly",
	.opts = cuda_options,
	.opts_size = sizeof(struct cuda_opts),
	.needs_model = true,
	.uses_gpu = true,
	.attach = cuda_attach,
	.open = cuda_open,
	.fit_blocks = cuda_fit_blocks,
	.max_captured = cuda_max_captured,
	.gpu = cuda_gpu,
	.start = cuda_start,
	.run = cuda_run,
	.compare = cuda_compare,
	.kept = cuda_kept_share,
	.layer_work = cuda_layer_work,
	.drop = cuda_drop,
	.barriers = cuda_barriers,
	.leave = cuda_leave,
	.close = cuda_close,
};
