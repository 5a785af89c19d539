/*
 * What backend "cuda" holds: the device, its memory, and how much of it the KV cache may have.
 *
 * All memory is allocated once: weights, activations and captures when the backend opens, the
 * KV cache, and workspaces, which may grow with it, when it starts.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ar_status take(struct cuda *c, void *to, size_t bytes, const char *what,
			   struct ar_err *err)
{
	void *p;
	size_t unused = 0, total = 0;

	assert(c->n_alloc < CUDA_ALLOCS);
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

void cuda_close(void *self)
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

enum ar_status cuda_open(void **self, const void *opts, const struct backend_env *env,
			 struct ar_err *err)
{
	struct cuda *c = calloc(1, sizeof *c);
	const struct gpu *gpu;
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
	c->rows.tail = method_tail(env->method);
	rows_limits(env, c->source.shape.page_tok, &c->rows.prefill, &c->rows.decode);
	st = gpu_current(&gpu, err);
	if (st)
		goto out;
	c->rows.prefill.n_sm = executor_n_sm(gpu);
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
int64_t cuda_fit_blocks(void *self)
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

enum ar_status cuda_take_pool(struct cuda *c, int64_t num_blocks, struct ar_err *err)
{
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
	return st;
}
