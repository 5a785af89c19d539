/*
 * Backend "cuda": the real kernels, on one stream of one GPU.
 *
 * All memory is allocated once: weights, activations and captures when the backend opens, the
 * KV cache, and workspaces, which may grow with it, when it starts.  An iteration is one copy of
 * the batch's arrays to the device, all launches, and one wait at the end; nothing in between
 * allocates or synchronises.  Its cost is the span of its kernels from the trace or, without
 * one, the time between two events; layers that were sampled out are made up for by scaling
 * everything but the head.
 *
 * Iterations made of decodes only run from CUDA graphs, padded to a few sizes, and cost what
 * the padded batch costs, as in engines.
 */
#include "config.h"
#include "replay/backends_attn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda.h"
#include "replay/accuracy.h"
#include "replay/decoder.h"
#include "replay/graphs.h"
#include "replay/rows.h"

struct cuda_opts {
	double utilization;
	int64_t device;
	bool enforce_eager;
};

static const struct opt cuda_options[] = {
	{ .name = "gpu-memory-utilization", .type = OPT_REAL,
	  .off = offsetof(struct cuda_opts, utilization), .arg = "X", .def = "0.9", .min = 0.01,
	  .max = 1,
	  .help = "share of the GPU's memory that may be used when --num-gpu-blocks is auto" },
	{ .name = "device", .type = OPT_INT, .off = offsetof(struct cuda_opts, device),
	  .arg = "N", .def = "0", .min = 0, .max = 1023, .help = "number of the GPU" },
	{ .name = "enforce-eager", .type = OPT_FLAG,
	  .off = offsetof(struct cuda_opts, enforce_eager),
	  .help = "launch every kernel by itself; else iterations of decodes only are padded and run "
		  "from CUDA graphs" },
	{ 0 }
};

enum { MAX_ALLOC = 32, HOLD_NS = 20000000 };

struct cuda {
	struct backend_env env;
	struct cuda_opts opts;
	struct store_gpu gpu;
	cudaStream_t stream;		/* in order with plain copies */
	cudaEvent_t begin, head, end;
	struct method *dense;
	struct decoder *decoder;	/* NULL: attention only */

	void *alloc[MAX_ALLOC];		/* device memory, freed at close */
	int n_alloc;
	struct source source;
	bf16_t *data;			/* the captures */
	struct layer_seq *seq;
	float *trig;
	bf16_t *q, *k, *out;		/* of the rows of an iteration */
	float *lse;
	void *work;			/* of the method or of decode, one after the other */

	struct pages *pages;
	size_t page_bytes;		/* of K or V in one layer */
	size_t state_bytes;		/* of the selector, beside a page */
	struct kv_cache *kv;		/* [n_run_layers] */
	void **state;			/* [n_run_layers], or all NULL */
	struct rows_env rows;		/* its memory is pinned */
	void *rows_dev;
	struct graphs graphs;

	struct host_out {		/* of compare() */
		bf16_t *out, *dense;
		float *lse, *lse_dense;
	} host;
	volatile int *go;		/* pinned; releases the GPU, see hold() */
	bool stale;			/* there may be traced kernels of no iteration */
};

/* ---- memory ---- */

static enum ar_status take(struct cuda *c, void *to, size_t bytes, const char *what,
			   struct ar_err *err)
{
	void *p;
	size_t unused = 0, total = 0;

	assert(c->n_alloc < MAX_ALLOC);
	if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
		cudaGetLastError();
		cudaMemGetInfo(&unused, &total);
		return ar_fail(err, AR_CUDA,
			       "%.2f GiB for %s do not fit the GPU: %.2f of %.2f GiB are free",
			       (double)bytes / 0x1p30, what, (double)unused / 0x1p30,
			       (double)total / 0x1p30);
	}
	c->alloc[c->n_alloc++] = p;
	memcpy(to, &p, sizeof p);
	return AR_OK;
}

static void cuda_close(void *self)
{
	struct cuda *c = self;

	if (!c)
		return;
	if (c->stream)
		cudaStreamSynchronize(c->stream);
	graphs_release(&c->graphs);
	decoder_close(c->decoder);
	for (int i = 0; i < c->n_alloc; i++)
		cudaFree(c->alloc[i]);
	cudaFreeHost(c->rows.mem);
	cudaFreeHost((void *)c->go);
	for (int i = 0; i < 3; i++) {
		cudaEvent_t e = (cudaEvent_t []){ c->begin, c->head, c->end }[i];

		if (e)
			cudaEventDestroy(e);
	}
	if (c->stream)
		cudaStreamDestroy(c->stream);
	pages_close(c->pages);
	free(c->kv);
	free(c->state);
	free(c->host.out);
	free(c->host.dense);
	free(c->host.lse);
	free(c->host.lse_dense);
	source_release(&c->source);
	method_free(c->dense);
	free(c);
}

/* ---- opening ---- */

static void describe(const struct cudaDeviceProp *p, struct store_gpu *gpu)
{
	const unsigned char *u = (const unsigned char *)p->uuid.bytes;

	snprintf(gpu->uuid, sizeof gpu->uuid,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
		 u[13], u[14], u[15]);
	snprintf(gpu->name, sizeof gpu->name, "%.*s", (int)sizeof gpu->name - 1, p->name);
	gpu->cc_major = p->major;
	gpu->cc_minor = p->minor;
	gpu->sm_count = p->multiProcessorCount;
	gpu->l2_bytes = p->l2CacheSize;
	gpu->mem_bytes = (int64_t)p->totalGlobalMem;
}

static enum ar_status open_device(struct cuda *c, struct ar_err *err)
{
	struct cudaDeviceProp prop;
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	enum ar_status st;

	if (e != cudaSuccess || n < 1)
		return ar_fail(err, AR_NODEV, "no usable GPU: %s; use --backend cpu or cost",
			       e == cudaSuccess ? "there is none" : cudaGetErrorString(e));
	if (c->opts.device >= n)
		return ar_fail(err, AR_NODEV, "there is no GPU %lld, only 0...%d; change --device",
			       (long long)c->opts.device, n - 1);
	CU(cudaSetDevice((int)c->opts.device));
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	CU(cudaGetDeviceProperties(&prop, (int)c->opts.device));
	describe(&prop, &c->gpu);
	if (prop.major < 8)
		return ar_fail(err, AR_NODEV,
			       "GPU %lld is a %s of compute capability %d.%d, 8.0 is the "
			       "least; change --device",
			       (long long)c->opts.device, c->gpu.name, prop.major, prop.minor);
	st = layer_supported(err);
	if (st)
		return st;
	CU(cudaStreamCreate(&c->stream));
	CU(cudaMallocHost((void **)&c->go, sizeof *c->go));
	CU(cudaEventCreate(&c->begin));
	CU(cudaEventCreate(&c->head));
	CU(cudaEventCreate(&c->end));
out:
	return st;
}

static enum ar_status put(void *ctx, size_t off, size_t pitch, const bf16_t *from, size_t width,
			  size_t rows, struct ar_err *err)
{
	bf16_t *to = (bf16_t *)ctx + off;
	enum ar_status st = AR_OK;

	CU(cudaMemcpy2D(to, pitch * sizeof *to, from, width * sizeof *to, width * sizeof *to, rows,
			cudaMemcpyHostToDevice));
out:
	return st;
}

static enum ar_status load_trig(struct cuda *c, struct ar_err *err)
{
	int half = c->source.shape.head_dim / 2;
	float *inv = calloc((size_t)half, sizeof *inv), *dev = NULL;
	enum ar_status st = inv ? AR_OK : ar_nomem(err);

	if (!st)
		st = take(c, &c->trig, (size_t)(c->source.n_turn * half * 2) * sizeof *c->trig,
			  "the rotations of RoPE", err);
	if (!st)
		st = take(c, &dev, (size_t)half * sizeof *dev, "the frequencies of RoPE", err);
	if (st)
		goto out;
	rope_inv_freq(&c->source.rope, c->source.shape.head_dim, inv);
	CU(cudaMemcpy(dev, inv, (size_t)half * sizeof *dev, cudaMemcpyHostToDevice));
	st = layer_trig(dev, half, (int)c->source.n_turn, c->trig, c->stream, err);
out:
	free(inv);
	return st;
}

static enum ar_status load_captures(struct cuda *c, struct ar_err *err)
{
	size_t bytes = c->source.n_seq * sizeof *c->seq;
	struct layer_seq *seq = malloc(bytes);
	enum ar_status st = seq ? AR_OK : ar_nomem(err);

	if (!st)
		st = take(c, &c->data, c->source.elems * sizeof *c->data,
			  "the captures (use fewer --layers or --sample-layers)", err);
	if (!st)
		st = take(c, &c->seq, bytes, "the table of captures", err);
	if (st)
		goto out;
	source_seqs(&c->source, c->data, seq);
	CU(cudaMemcpy(c->seq, seq, bytes, cudaMemcpyHostToDevice));
	st = source_load(&c->source, c->env.capture, put, c->data, err);
	if (!st)
		st = load_trig(c, err);
out:
	free(seq);
	return st;
}

static enum ar_status open_rows(struct cuda *c, struct ar_err *err)
{
	const struct attn_shape *s = &c->source.shape;
	const struct rows_env *r = &c->rows;
	size_t row = (size_t)(r->prefill.max_row + r->decode.max_row), dim = (size_t)s->head_dim;
	size_t q = row * (size_t)s->q_heads, k = row * (size_t)s->kv_heads;
	enum ar_status st = take(c, &c->q, q * dim * sizeof *c->q, "the queries", err);

	if (!st)
		st = take(c, &c->k, k * dim * sizeof *c->k, "the keys", err);
	if (!st)
		st = take(c, &c->out, q * dim * sizeof *c->out, "the attention outputs", err);
	if (!st)
		st = take(c, &c->lse, q * sizeof *c->lse, "the log sums", err);
	return st;
}

static enum ar_status open_decoder(struct cuda *c, struct ar_err *err)
{
	const struct backend_env *env = &c->env;
	const struct decoder_env d = {
		.model = env->model,
		.n_layers = env->n_run_layers,
		.max_row = c->rows.prefill.max_row + c->rows.decode.max_row,
		.max_emit = c->rows.prefill.max_req + c->rows.decode.max_req,
		.seed = env->seed,
		.stream = c->stream,
		.phase = prof_phase,
		.phase_ctx = env->prof,
	};

	return env->attention_only ? AR_OK : decoder_open(&c->decoder, &d, err);
}

static enum ar_status cuda_open(void **self, const void *opts, const struct backend_env *env,
				struct ar_err *err)
{
	struct cuda *c = calloc(1, sizeof *c);
	enum ar_status st;

	*self = NULL;
	if (!c)
		return ar_nomem(err);
	c->env = *env;
	c->opts = *(const struct cuda_opts *)opts;
	c->stale = true;
	st = open_device(c, err);
	if (!st)
		st = method_parse(&c->dense, "dense", err);
	if (!st)
		st = source_init(&c->source, env, err);
	if (!st)
		st = source_open_method(&c->source, env, true, err);
	if (st)
		goto out;
	c->rows.source = &c->source;
	c->rows.capture_of = env->capture_of;
	rows_limits(env, c->source.shape.page_tok, &c->rows.prefill, &c->rows.decode);
	st = executor_multiprocessors(&c->rows.prefill.n_sm, err);
	if (st)
		goto out;
	c->page_bytes = pages_offset(&c->source.shape, 1, 0) * sizeof(bf16_t);
	c->state_bytes = method_state_bytes(env->method, &c->source.shape);
	st = graphs_init(&c->graphs, c->rows.decode.max_req, err);
	if (!st)
		st = load_captures(c, err);
	if (!st)
		st = open_rows(c, err);
	if (!st)
		st = open_decoder(c, err);
out:
	if (st) {
		cuda_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

/* ---- the KV cache ---- */

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Bytes of work over a cache of n_page pages. */
static size_t work_bytes(const struct cuda *c, int64_t n_page)
{
	const struct attn_shape *s = &c->source.shape;
	struct attn_limits prefill = c->rows.prefill;

	prefill.max_page = n_page;
	return larger(decode_work_bytes(s, &c->rows.decode),
		      larger(method_work_bytes(c->env.method, s, &prefill),
			     method_work_bytes(c->dense, s, &prefill)));
}

/* The smaller of what is left on this GPU for the layers that are executed, and of what a
 * server would have that holds the weights and the cache of all layers and no captures.  Work
 * is the larger of things that are linear in the pages: the chord is never too small. */
static int64_t cuda_fit_blocks(void *self)
{
	struct cuda *c = self;
	const struct model *m = c->env.model;
	double page = (double)(2 * c->page_bytes + c->state_bytes), allowed, here, server;
	double weights = (double)decoder_layer_bytes(m) * m->n_layers +
			 (double)decoder_head_bytes(m);
	int page_tok = c->source.shape.page_tok;
	double most = INT32_MAX / page_tok, work = (double)work_bytes(c, 0);
	double slope = ((double)work_bytes(c, INT32_MAX / page_tok) - work) / most;
	size_t unused, total;
	int64_t pages;

	if (cudaMemGetInfo(&unused, &total) != cudaSuccess)
		return 0;
	allowed = c->opts.utilization * (double)total;
	here = (allowed - (double)(total - unused) - work) / (page * c->env.n_run_layers + slope);
	server = (allowed - weights) / (page * m->n_layers + slope);
	most = most < here ? most : here;
	most = most < server ? most : server;
	pages = (int64_t)most - c->env.max_seqs - 1;	/* see pages_needed(); scratch */
	return pages > 0 ? pages * page_tok / c->env.block_tok : 0;
}

static enum ar_status take_cache(struct cuda *c, size_t n_page, struct ar_err *err)
{
	size_t n = (size_t)c->env.n_run_layers;
	size_t state = (n_page * c->state_bytes + 255) / 256 * 256;
	size_t layer = 2 * n_page * c->page_bytes + state;
	char *mem = NULL;
	enum ar_status st = take(c, &mem, n * layer, "the KV cache (lower --num-gpu-blocks)", err);

	if (st)
		return st;
	c->kv = calloc(n, sizeof *c->kv);
	c->state = calloc(n, sizeof *c->state);
	if (!c->kv || !c->state)
		return ar_nomem(err);
	CU(cudaMemsetAsync(mem, 0, n * layer, c->stream));
	for (size_t i = 0; i < n; i++, mem += layer) {
		c->kv[i].k = (bf16_t *)mem;
		c->kv[i].v = (bf16_t *)(mem + n_page * c->page_bytes);
		c->state[i] = c->state_bytes ? mem + 2 * n_page * c->page_bytes : NULL;
	}
out:
	return st;
}

static enum ar_status take_rows(struct cuda *c, int64_t n_page, struct ar_err *err)
{
	size_t row = (size_t)c->rows.prefill.max_row, heads = (size_t)c->source.shape.q_heads;
	size_t dim = (size_t)c->source.shape.head_dim;
	enum ar_status st;

	c->rows.pages = c->pages;
	c->rows.scratch = (int32_t)n_page;
	c->rows.prefill.max_page = n_page;
	c->rows.bytes = rows_bytes(&c->rows, n_page);
	st = take(c, &c->rows_dev, c->rows.bytes, "the arrays of a batch", err);
	if (st)
		return st;
	CU(cudaMallocHost(&c->rows.mem, c->rows.bytes));
	c->host.out = calloc(row * heads, dim * sizeof(bf16_t));
	c->host.dense = calloc(row * heads, dim * sizeof(bf16_t));
	c->host.lse = calloc(row * heads, sizeof(float));
	c->host.lse_dense = calloc(row * heads, sizeof(float));
	if (!c->host.out || !c->host.dense || !c->host.lse || !c->host.lse_dense)
		st = ar_nomem(err);
out:
	return st;
}

/* ---- iterations ---- */

/* Rows of the graph that runs b, 0: none does. */
static int graph_rows(const struct cuda *c, const struct batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (!b->entry[i].decode)
			return 0;
	return c->opts.enforce_eager ? 0 : rows_padded((int)b->n, c->graphs.max_row);
}

/* The rows of b on the host and, once the stream gets there, on the device; padded to pad of
 * them, or 0. */
static enum ar_status stage(struct cuda *c, const struct batch *b, const struct method *m, int pad,
			    struct rows *host, struct rows *dev, struct ar_err *err)
{
	size_t used = 0;
	enum ar_status st = pad ? rows_build_decodes(host, &c->rows, b, pad, &used, err) :
				  rows_build(host, &c->rows, b, m, &used, err);

	if (st)
		return st;
	CU(cudaMemcpyAsync(c->rows_dev, c->rows.mem, used, cudaMemcpyHostToDevice, c->stream));
	*dev = rows_at(host, c->rows.mem, c->rows_dev);
out:
	return st;
}

static enum ar_status rotate(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_ROPE);
	return layer_rope(&c->source.shape, c->seq, c->source.layer_of[i], r->row, r->n_row,
			  c->trig, c->q, c->k, c->stream, err);
}

static enum ar_status write_cache(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_CACHE);
	return layer_cache(&c->source.shape, c->seq, c->source.layer_of[i], r->row, r->n_row, c->k,
			   &c->kv[i], c->stream, err);
}

static enum ar_status attend(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	size_t skip = (size_t)r->n_prefill * (size_t)c->source.shape.q_heads *
		      (size_t)c->source.shape.head_dim;
	int layer = c->env.run_layer[i];
	enum ar_status st = AR_OK;

	if (r->prefill.n_req)
		st = method_enqueue(c->env.method, &r->prefill, c->q, &c->kv[i], c->state[i],
				    c->out, NULL, c->work, c->stream, prof_phase, c->env.prof,
				    layer, err);
	if (st || !r->decode.n_req)
		return st;
	prof_phase(c->env.prof, layer, PHASE_DECODE);
	return decode_enqueue(&r->decode, 0, NULL, c->q + skip, &c->kv[i], c->out + skip, c->work,
			      c->stream, err);
}

/* All layers and the head, with an event before, between and after.  flags: of the events. */
static enum ar_status enqueue(struct cuda *c, const struct rows *r, unsigned flags,
			      struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaEventRecordWithFlags(c->begin, c->stream, flags));
	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		int layer = c->env.run_layer[i];

		if (c->decoder)
			st = decoder_before(c->decoder, i, layer, err);
		if (!st)
			st = rotate(c, i, r, err);
		if (!st)
			st = write_cache(c, i, r, err);
		if (!st)
			st = attend(c, i, r, err);
		if (!st && c->decoder)
			st = decoder_after(c->decoder, i, layer, c->out, err);
	}
	if (st)
		return st;
	CU(cudaEventRecordWithFlags(c->head, c->stream, flags));
	if (c->decoder)
		st = decoder_head(c->decoder, r->emit, r->n_emit, err);
	if (!st)
		CU(cudaEventRecordWithFlags(c->end, c->stream, flags));
out:
	return st;
}

/* Bring the missing rows into the cache, outside of any timed region.  A selector that keeps
 * state beside the pages has to see them as well, also those that decodes brought. */
static enum ar_status fill(struct cuda *c, const struct batch_entry *e, struct ar_err *err)
{
	struct batch_entry one = *e;
	struct rows host, dev;
	bool held = pages_len(c->pages, e->req) >= (int64_t)e->start + e->n_tok;
	enum ar_status st = rows_grow(c->pages, e, err);

	if (!st)
		st = stage(c, &(struct batch){ .entry = &one, .n = 1 }, c->env.method, 0, &host,
			   &dev, err);
	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		st = rotate(c, i, &dev, err);
		if (!st && !held)
			st = write_cache(c, i, &dev, err);
		if (!st && c->state[i])
			st = attend(c, i, &dev, err);
	}
	if (st)
		return st;
	c->stale = true;
	CU(cudaStreamSynchronize(c->stream));
out:
	return st;
}

static enum ar_status fill_missing(struct cuda *c, const struct batch *b, struct ar_err *err)
{
	struct batch_entry piece;
	enum ar_status st = AR_OK;

	for (size_t e = 0; e < b->n && !st; e++)
		while (!st && rows_missing(c->pages, &b->entry[e], c->state_bytes > 0,
					   c->rows.prefill.max_row, &piece))
			st = fill(c, &piece, err);
	for (size_t e = 0; e < b->n && !st; e++)
		st = rows_grow(c->pages, &b->entry[e], err);
	return st;
}

static enum ar_status begin(struct cuda *c, const struct rows *r, struct ar_err *err)
{
	return c->decoder ? decoder_begin(c->decoder, r->n_row, err) : AR_OK;
}

struct pass {
	struct cuda *c;
	const struct rows *rows;
};

/* Inside of a graph the events are nodes of it. */
static enum ar_status enqueue_pass(void *ctx, struct ar_err *err)
{
	const struct pass *p = ctx;
	enum ar_status st = enqueue(p->c, p->rows, cudaEventRecordExternal, err);

	prof_phase(p->c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	return st;
}

/* Capture the graph that runs r, and run it, outside of any timed region.  It changes nothing
 * that the iteration will not write again.  The pass before makes libraries load their code,
 * which a capture must not. */
static enum ar_status make_graph(struct cuda *c, const struct rows *r, struct ar_err *err)
{
	struct pass pass = { c, r };
	enum ar_status st = begin(c, r, err);

	if (!st)
		st = enqueue(c, r, cudaEventRecordDefault, err);
	if (!st)
		st = begin(c, r, err);
	if (!st)
		st = graphs_capture(&c->graphs, r->n_row, enqueue_pass, &pass, c->stream, err);
	if (!st)
		st = graphs_launch(&c->graphs, r->n_row, c->stream, err);
	c->stale = true;
	return st;
}

/* Forget kernels that belong to no iteration. */
static enum ar_status discard(struct cuda *c, struct ar_err *err)
{
	const struct prof_kernel *kernel;
	enum ar_status st = AR_OK;
	size_t n;

	if (!c->env.prof || !c->stale)
		return AR_OK;
	CU(cudaStreamSynchronize(c->stream));
	c->stale = false;
	st = prof_collect(c->env.prof, &kernel, &n, err);
out:
	return st;
}

/* ---- cost ---- */

static int64_t scaled(const struct cuda *c, int64_t layers_ns, int64_t head_ns)
{
	return layers_ns * c->env.model->n_layers / c->env.n_run_layers + head_ns;
}

static enum ar_status event_cost(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	float layers, head;

	CU(cudaEventElapsedTime(&layers, c->begin, c->head));
	CU(cudaEventElapsedTime(&head, c->head, c->end));
	cost->event_ns = (int64_t)(((double)layers + head) * 1e6);
	cost->cost_ns = scaled(c, (int64_t)((double)layers * 1e6), (int64_t)((double)head * 1e6));
out:
	return st;
}

/* The GPU waits until the host has enqueued the iteration: how long the host takes, and the tracer
 * on it, is not the GPU's time.  Not for ever: the queue of launches is finite. */
static enum ar_status hold(struct cuda *c, struct ar_err *err)
{
	*c->go = 0;
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	return layer_hold(c->go, HOLD_NS, c->stream, err);
}

/* Kernels before the first phase are not the iteration's. */
static enum ar_status collect(struct cuda *c, struct iter_cost *cost, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (c->env.prof)
		st = prof_collect(c->env.prof, &cost->kernel, &cost->n_kernel, err);
	while (!st && cost->n_kernel && cost->kernel->phase == PHASE_NONE) {
		cost->kernel++;
		cost->n_kernel--;
	}
	return st;
}

/* Kernels come in the order of their starts.  What lies between the last end of the layers and
 * the end of all is the head's. */
static void kernel_cost(const struct cuda *c, struct iter_cost *cost)
{
	int64_t first = cost->kernel[0].start_ns, layers = first, end = first;

	cost->busy_ns = 0;
	for (size_t i = 0; i < cost->n_kernel; i++) {
		const struct prof_kernel *k = &cost->kernel[i];
		int64_t from = k->start_ns > end ? k->start_ns : end;

		if (k->end_ns > from)
			cost->busy_ns += k->end_ns - from;
		end = k->end_ns > end ? k->end_ns : end;
		if (k->phase != PHASE_HEAD)
			layers = k->end_ns > layers ? k->end_ns : layers;
		cost->phase_ns[k->phase] += k->end_ns - k->start_ns;
		cost->phase_kernels[k->phase]++;
	}
	cost->span_ns = end - first;
	cost->cost_ns = scaled(c, layers - first, end - layers);
}

static enum ar_status cuda_run(void *self, const struct batch *b, struct iter_cost *cost,
			       struct ar_err *err)
{
	struct cuda *c = self;
	struct iter_cost x = { .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	struct rows host, dev;
	int pad = graph_rows(c, b);
	enum ar_status st;

	if (!b->n) {
		*cost = x;
		return AR_OK;
	}
	st = fill_missing(c, b, err);
	if (!st)
		st = stage(c, b, c->env.method, pad, &host, &dev, err);
	if (!st && pad && !c->graphs.exec[pad])
		st = make_graph(c, &dev, err);
	if (!st)
		st = discard(c, err);
	if (!st)
		st = begin(c, &dev, err);
	if (st)
		return st;
	st = hold(c, err);
	if (!st)
		st = pad ? graphs_launch(&c->graphs, pad, c->stream, err) :
			   enqueue(c, &dev, cudaEventRecordDefault, err);
	*c->go = 1;
	if (st)
		return st;
	CU(cudaStreamSynchronize(c->stream));
	st = event_cost(c, &x, err);
	if (!st)
		st = collect(c, &x, err);
	if (!st && x.n_kernel)
		kernel_cost(c, &x);
	if (!st)
		*cost = x;
out:
	return st;
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A chunk, a chunk on top of it and a decode row of the first request, so that every kernel
 * has been launched before the first iteration. */
static enum ar_status warm_up(struct cuda *c, int64_t n_page, struct ar_err *err)
{
	int64_t most = lesser(c->env.max_len, n_page * c->source.shape.page_tok);
	int64_t half = lesser(c->env.max_batched_tok,
			      lesser(most, c->source.seq[c->env.capture_of[0]].n_tok) / 2);
	uint32_t n = (uint32_t)half;
	struct batch_entry e[] = {
		{ .start = 0, .n_tok = n, .known = 2 * n },
		{ .start = n, .n_tok = n, .known = 2 * n, .emit = true },
		{ .start = 2 * n - 1, .n_tok = 1, .known = 2 * n, .decode = true,
		  .emit = true },
	};
	struct iter_cost unused;
	enum ar_status st = AR_OK;

	for (int i = 0; n && i < 3 && !st; i++)
		st = cuda_run(c, &(struct batch){ .entry = &e[i], .n = 1 }, &unused, err);
	pages_drop(c->pages, 0);
	return st;
}

static enum ar_status cuda_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct cuda *c = self;
	int tok = c->source.shape.page_tok;
	int64_t n_page = pages_needed(num_blocks, c->env.block_tok, c->env.max_seqs, tok);
	enum ar_status st = pages_open(&c->pages, n_page, tok, c->env.trace->n, err);

	if (!st)
		st = take_rows(c, n_page, err);
	if (!st)
		st = take(c, &c->work, work_bytes(c, n_page),
			  "workspaces (lower --max-num-batched-tokens or --num-gpu-blocks)", err);
	if (!st)
		st = take_cache(c, (size_t)n_page + 1, err);
	if (!st && c->env.trace->n)
		st = warm_up(c, n_page, err);
	return st;
}

/* ---- accuracy ---- */

/* Attention of the staged rows under m; output and log sums go to the host. */
static enum ar_status run_one(struct cuda *c, int i, const struct method *m, const struct rows *r,
			      bf16_t *out, float *lse, struct ar_err *err)
{
	size_t n = (size_t)r->n_row * (size_t)c->source.shape.q_heads;
	size_t bytes = n * (size_t)c->source.shape.head_dim * sizeof *out;
	enum ar_status st = method_enqueue(
		m, &r->prefill, c->q, &c->kv[i], m->dense ? NULL : c->state[i], c->out, c->lse,
		c->work, c->stream, prof_phase, c->env.prof, c->env.run_layer[i], err);

	if (st)
		return st;
	CU(cudaMemcpyAsync(out, c->out, bytes, cudaMemcpyDeviceToHost, c->stream));
	CU(cudaMemcpyAsync(lse, c->lse, n * sizeof *lse, cudaMemcpyDeviceToHost, c->stream));
	CU(cudaStreamSynchronize(c->stream));
out:
	return st;
}

static enum ar_status cuda_compare(void *self, const struct batch_entry *e, int i,
				   struct accuracy *acc, struct selection_count *count,
				   struct method_selection *sel, struct ar_err *err)
{
	struct cuda *c = self;
	struct batch_entry one = *e;
	const struct batch b = { .entry = &one, .n = 1 };
	struct rows host, dev;
	enum ar_status st;

	assert(!e->decode);
	c->stale = true;
	st = stage(c, &b, c->env.method, 0, &host, &dev, err);
	if (!st)
		st = layer_rope(&c->source.shape, c->seq, c->source.layer_of[i], dev.row, dev.n_row,
				c->trig, c->q, c->k, c->stream, err);
	if (!st)
		st = run_one(c, i, c->env.method, &dev, c->host.out, c->host.lse, err);
	if (!st)
		st = method_count_device(c->env.method, &host.prefill, c->work, count, err);
	if (!st && sel)
		st = method_selection_device(c->env.method, &host.prefill, c->work, sel, err);
	if (!st)
		st = stage(c, &b, c->dense, 0, &host, &dev, err);
	if (!st)
		st = run_one(c, i, c->dense, &dev, c->host.dense, c->host.lse_dense, err);
	if (!st)
		accuracy_measure(&c->source.shape, host.n_row, c->host.out, c->host.dense,
				 c->host.lse, c->host.lse_dense, acc);
	return st;
}

static void cuda_drop(void *self, uint32_t req)
{
	struct cuda *c = self;

	pages_drop(c->pages, req);
}

static const struct store_gpu *cuda_gpu(void *self)
{
	struct cuda *c = self;

	return &c->gpu;
}

const struct backend backend_cuda = {
	.name = "cuda",
	.title = "real kernels; random weights, experts loaded evenly, no communication of ranks",
	.opts = cuda_options,
	.opts_size = sizeof(struct cuda_opts),
	.needs_model = true,
	.uses_gpu = true,
	.open = cuda_open,
	.fit_blocks = cuda_fit_blocks,
	.gpu = cuda_gpu,
	.start = cuda_start,
	.run = cuda_run,
	.compare = cuda_compare,
	.drop = cuda_drop,
	.close = cuda_close,
};
