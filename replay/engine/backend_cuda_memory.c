/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": opens the device, allocates its memory and sizes the KV cache.
 *
 * All memory is allocated once.  open() allocates weights, activations and captures.  start()
 * allocates the KV cache and the workspaces, as their size may depend on the cache's.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/workspace.h"
#include "kernels/layer/gemm.h"
#include "kernels/support.h"
#include "replay/engine/prepare.h"
#include "replay/host/host_probe.h"
#include "replay/ranks/world.h"

static enum ar_status cuda_take(void *ctx, void *to, size_t bytes, const char *what,
				struct ar_err *err)
{
	struct cuda_device *d = ctx;
	void *p;
	size_t unused = 0, total = 0;

	assert(d->n_alloc < CUDA_ALLOCS);
	if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
		cudaGetLastError();
		cudaMemGetInfo(&unused, &total);
		return ar_fail(err, AR_CUDA,
			       "%.2f GiB for %s do not fit the GPU: %.2f of %.2f GiB are free",
			       (double)bytes / 0x1p30, what, (double)unused / 0x1p30,
			       (double)total / 0x1p30);
	}
	d->alloc[d->n_alloc++] = p;
	memcpy(to, &p, sizeof p);
	return AR_OK;
}

static void pass_release(struct cuda_pass *p)
{
	for (int i = 0; i < CUDA_GRAPHS; i++)
		graphs_release(&p->graphs[i]);
	graph_sizes_release(&p->sizes);
	cudaFreeHost(p->rows.mem);
	rows_env_release(&p->rows);
	row_set_release(&p->host);
	row_set_release(&p->dev);
	cudaFreeHost(p->logits);
	cudaFreeHost(p->drops.slot_host);
	cuda_release_share(&p->share);
	free(p->drops.aux);
	free(p->kv);
	free(p->state);
}

static void clock_release(struct cuda_clock *t)
{
	for (int i = 0; i < 3; i++) {
		cudaEvent_t e = (cudaEvent_t[]){ t->begin, t->head, t->end }[i];

		if (e)
			cudaEventDestroy(e);
	}
	cudaFreeHost((void *)t->go);
	free(t->enqueued_ns);
}

static void device_release(struct cuda_device *d)
{
	for (int i = 0; i < d->n_alloc; i++)
		cudaFree(d->alloc[i]);
	if (d->stream)
		cudaStreamDestroy(d->stream);
}

void cuda_close(void *self)
{
	struct cuda *c = self;

	if (!c)
		return;
	if (c->device.stream)
		cudaStreamSynchronize(c->device.stream);
	pass_release(&c->pass);
	decoder_close(c->decoder);
	clock_release(&c->clock);
	cuda_evict_close(&c->evict);
	device_release(&c->device);
	attn_engine_release(&c->engine);
	free(c);
}

/* ---- opening ---- */

/* Run the products of the first layer, whose code is loaded then. */
static void run_products(const struct backend_env *env)
{
	const struct decoder_env d = { .model = env->model,
				       .layer = env->run_layer,
				       .n_layers = 1,
				       .max_row = (int)env->max_batched_tok,
				       .max_emit = (int)env->max_seqs,
				       .phase = prof_phase,
				       .phase_ctx = env->prof };
	struct decoder *one;
	struct ar_err unused;

	prof_phase(env->prof, PHASE_NO_LAYER, PHASE_NONE); /* of kernels that draw the weights */
	if (!decoder_open(&one, &d, &unused))
		decoder_close(one);
}

/* Make the context, and load cuBLAS and the code of its products.  Not where one process at a time
 * may use the GPU: another may still do. */
void cuda_attach(const void *opts, const struct backend_env *env)
{
	const int device = (int)((const struct cuda_opts *)opts)->device;
	int mode;

	if (!cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device) &&
	    mode == cudaComputeModeDefault && !cudaSetDevice(device) && !env->attention_only)
		run_products(env);
	cudaGetLastError();
}

static void describe_gpu(const struct cudaDeviceProp *p, struct store_gpu *gpu)
{
	const unsigned char *u = (const unsigned char *)p->uuid.bytes;
	size_t unused, total;
	int cuda = 0;

	snprintf(gpu->uuid, sizeof gpu->uuid,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
	snprintf(gpu->name, sizeof gpu->name, "%.*s", (int)sizeof gpu->name - 1, p->name);
	gpu->cc_major = p->major;
	gpu->cc_minor = p->minor;
	gpu->sm_count = p->multiProcessorCount;
	gpu->l2_bytes = p->l2CacheSize;
	gpu->mem_bytes = (int64_t)p->totalGlobalMem;
	if (cudaMemGetInfo(&unused, &total) == cudaSuccess)
		gpu->free_bytes = (int64_t)unused;
	if (cudaDriverGetVersion(&cuda) == cudaSuccess)
		snprintf(gpu->driver, sizeof gpu->driver, "CUDA %d.%d", cuda / 1000,
			 cuda % 1000 / 10);
}

static enum ar_status open_device(struct cuda *c, struct ar_err *err)
{
	struct cudaDeviceProp prop;
	int n = 0, version = 0;
	const int device = c->env.world ? world_device(c->env.world) : (int)c->opts.device;
	cudaError_t e = cudaGetDeviceCount(&n);
	enum ar_status st;

	if (e != cudaSuccess || n < 1)
		return ar_fail(err, AR_NODEV, "no usable GPU: %s; use --backend cpu or cost",
			       e == cudaSuccess				  ? "there is none" :
			       cudaDriverGetVersion(&version) || !version ? "no NVIDIA driver" :
									    cudaGetErrorString(e));
	if (device >= n)
		return ar_fail(err, AR_NODEV, "there is no GPU %d, only 0...%d; change %s", device,
			       n - 1, c->env.world ? "--devices" : "--device");
	host_probe_take(); /* while this process has no context, and loads nothing */
	if (!c->env.attention_only)
		gemm_load_early();
	CU(cudaSetDevice(device));
	host_probe_leave(); /* the memory that is free from now on is this run's */
	prof_phase(c->env.prof, PHASE_NO_LAYER, PHASE_NONE);
	CU(cudaGetDeviceProperties(&prop, device));
	describe_gpu(&prop, &c->device.gpu);
	if (prop.major < 8)
		return ar_fail(err, AR_NODEV,
			       "GPU %d, %s, has compute capability %d.%d, but 8.0 or later "
			       "is needed; change --device",
			       device, c->device.gpu.name, prop.major, prop.minor);
	st = layer_supported(err);
	if (st)
		return st;
	CU(cudaStreamCreate(&c->device.stream));
	CU(cudaMallocHost((void **)&c->clock.go, sizeof *c->clock.go));
	CU(cudaEventCreate(&c->clock.begin));
	CU(cudaEventCreate(&c->clock.head));
	CU(cudaEventCreate(&c->clock.end));
out:
	return st;
}

static enum ar_status load_activations(struct cuda *c, struct ar_err *err)
{
	const struct activations_device d = {
		.take = cuda_take,
		.take_ctx = &c->device,
		.stream = c->device.stream,
		.phase = prof_phase,
		.phase_ctx = c->env.prof,
	};

	return c->engine.act->load(c->engine.act_self, &d, err);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static enum ar_status open_rows(struct cuda *c, struct ar_err *err)
{
	const struct attn_shape s = attn_engine_widest(&c->engine);
	const struct rows_env *r = &c->pass.rows;
	size_t row = (size_t)rows_max(r), dim = (size_t)s.head_dim;
	size_t q = row * (size_t)s.q_heads, k = row * (size_t)s.kv_heads;
	size_t out = larger(q * dim, row * cuda_linear_width(c));
	enum ar_status st = cuda_take(&c->device, &c->pass.q, q * dim * sizeof *c->pass.q,
				      "the queries", err);

	if (!st)
		st = cuda_take(&c->device, &c->pass.k, k * dim * sizeof *c->pass.k, "the keys",
			       err);
	if (!st)
		st = cuda_take(&c->device, &c->pass.out, out * sizeof *c->pass.out,
			       "the attention outputs", err);
	if (!st)
		st = cuda_take(&c->device, &c->pass.lse, q * sizeof *c->pass.lse, "the log sums",
			       err);
	return st;
}

static enum ar_status open_sinks(struct cuda *c, struct ar_err *err)
{
	size_t bytes = (size_t)c->env.n_run_layers * c->engine.n_sink * sizeof *c->pass.sink;
	enum ar_status st;

	if (!c->engine.sink)
		return AR_OK;
	st = cuda_take(&c->device, &c->pass.sink, bytes, "the sinks", err);
	if (!st)
		CU(cudaMemcpy(c->pass.sink, c->engine.sink, bytes, cudaMemcpyHostToDevice));
out:
	return st;
}

static enum ar_status open_decoder(struct cuda *c, struct ar_err *err)
{
	const struct backend_env *env = &c->env;
	enum ar_status st = AR_OK;
	const struct decoder_env d = {
		.model = env->model,
		.layer = env->run_layer,
		.n_layers = env->n_run_layers,
		.max_row = rows_max(&c->pass.rows),
		.max_emit = rows_max_emit(&c->pass.rows),
		.drops = c->engine.drops.n > 1,
		.back = c->engine.drops.back,
		.weights = env->weights,
		.world = env->world,
		.seed = env->seed,
		.stream = c->device.stream,
		.phase = prof_phase,
		.phase_ctx = env->prof,
	};

	assert(!env->weights ||
	       (!env->attention_only && env->n_run_layers == env->model->n_layers));
	if (env->weights)
		CU(cudaMallocHost((void **)&c->pass.logits, (size_t)env->model->vocab *
								    (size_t)env->model->tp *
								    sizeof *c->pass.logits));
	if (!env->attention_only)
		st = decoder_open(&c->decoder, &d, err);
out:
	return st;
}

/* Check the kernels of executed layer i: a part of its method for each kind of rows, and dense
 * attention to compare with. */
static enum ar_status check_layer(const struct cuda *c, int i, int cc, struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	enum ar_status st = AR_OK;

	for (int k = 0; k < ROW_KINDS && !st; k++)
		if (c->pass.rows.limit[k].max_row)
			st = method_supported(&m->part[k], &g->shape, g->layout, cc, err);
	return st ? st :
		    method_supported(method_prefill(c->engine.dense), &g->shape, g->layout, cc,
				     err);
}

static enum ar_status check_kernels(const struct cuda *c, const struct gpu *gpu, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < c->env.n_run_layers && !st; i++)
		if (mixer_attends(attn_engine_mixer(&c->engine, i)))
			st = check_layer(c, i, gpu->cc, err);
	return st;
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
	c->clock.stale = true;
	c->clock.enqueued_ns = calloc((size_t)env->n_run_layers + 1, sizeof *c->clock.enqueued_ns);
	st = c->clock.enqueued_ns ? open_device(c, err) : ar_nomem(err);
	if (!st)
		st = prepare_check_kernels(env->model, err);
	if (!st)
		st = attn_engine_open(&c->engine, env, true, err);
	if (!st)
		st = attn_engine_rows(&c->engine, env, &c->pass.rows, err);
	if (!st)
		st = row_set_init(&c->pass.host, &c->pass.rows, err);
	if (!st)
		st = row_set_init(&c->pass.dev, &c->pass.rows, err);
	if (!st)
		st = gpu_current(&gpu, err);
	if (!st)
		st = check_kernels(c, gpu, err);
	if (!st)
		st = cuda_check_linear(c, gpu->cc, err);
	if (st)
		goto out;
	c->pass.rows.tiles = true;
	c->pass.rows.limit[ROW_PREFILL].n_sm = attn_engine_n_sm(&c->engine, gpu);
	c->pass.rows.limit[ROW_VERIFY].n_sm = attn_engine_n_sm(&c->engine, gpu);
	for (int i = 0; i < CUDA_GRAPHS && !st; i++)
		st = graphs_init(&c->pass.graphs[i], c->pass.rows.limit[ROW_DECODE].max_req, err);
	if (!st && !c->opts.enforce_eager)
		st = graph_sizes_open(&c->pass.sizes, c->opts.capture_sizes, env->max_seqs,
				      env->max_captured, env->max_batched_tok, err);
	if (!st)
		st = load_activations(c, err);
	if (!st)
		st = open_rows(c, err);
	if (!st)
		st = open_sinks(c, err);
	if (!st && env->world)
		st = cuda_take(&c->device, &c->clock.barrier, sizeof *c->clock.barrier,
			       "a barrier of ranks", err);
	if (!st)
		st = open_decoder(c, err);
	if (!st)
		st = cuda_evict_open(c, cuda_take, err);
out:
	if (st) {
		cuda_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

/* ---- the KV cache ---- */

/* Bytes of the workspace for a view, in which limits l[ROW_KINDS] hold. */
static size_t view_work(const struct cuda *c, const struct row_view *v, const struct attn_limits *l)
{
	const struct attn_shape *s = &v->group->shape;
	size_t n = method_work_bytes(method_prefill(c->engine.dense), s, &l[ROW_PREFILL]);

	for (int k = 0; k < ROW_KINDS; k++)
		if (l[k].max_row)
			n = larger(n, method_work_bytes(&v->method->part[k], s, &l[k]));
	for (int k = 0; c->env.evict && k < ROW_REVIVED; k++)
		if (l[k].max_row)
			n = larger(n, evict_add_bytes(c->env.evict, s, &l[k]));
	n = larger(n, cuda_drop_work(c, s, &l[ROW_PREFILL]));
	return c->pass.rows.revives ? larger(n, cuda_drop_work(c, s, &l[ROW_DECODE])) : n;
}

static size_t lists_bytes(const struct cuda *c)
{
	return attn_engine_lists_bytes(&c->engine, &c->pass.rows.limit[ROW_DECODE]);
}

/* Bytes of the workspace that dense decodes have beside chunks. */
static size_t beside_bytes(const struct cuda *c)
{
	const struct rows_env *r = &c->pass.rows;
	size_t n = 0;

	for (int i = 0; i < r->n_view; i++) {
		const struct method *m = r->view[i].method;

		if (m && m->part[ROW_DECODE].dense)
			n = larger(n,
				   method_work_bytes(&m->part[ROW_DECODE], &r->view[i].group->shape,
						     &r->limit[ROW_DECODE]));
	}
	return n;
}

/* Bytes of the workspaces for a cache of n_page pages, and of lists that pass between layers. */
static size_t work_bytes(const struct cuda *c, int64_t n_page)
{
	struct attn_limits l[ROW_KINDS];
	size_t n = c->decoder ? cuda_linear_work(c) : 0;

	memcpy(l, c->pass.rows.limit, sizeof l);
	for (int k = 0; k < ROW_KINDS; k++)
		l[k].max_page = n_page;
	l[ROW_DECODE].max_page += l[ROW_DECODE].max_req + 1; /* padded rows */
	for (int i = 0; i < c->pass.rows.n_view; i++)
		if (c->pass.rows.view[i].method)
			n = larger(n, view_work(c, &c->pass.rows.view[i], l));
	return n + beside_bytes(c) + lists_bytes(c);
}

/* The most pages of a full layer for which two caches fit.  here: bytes that this GPU has left for
 * the cache of the executed layers.  server: bytes that a GPU with all weights and no captures has
 * left for the cache of all layers.
 *
 * Workspace bytes are a maximum of functions linear in the pages.  So the chord between the two
 * ends is never too small. */
int64_t cuda_fit_blocks(void *self)
{
	struct cuda *c = self;
	const struct model *m = c->env.model;
	double weights = (double)decoder_layers_bytes(m) + (double)decoder_head_bytes(m);
	int page_tok = c->engine.plan.page_tok;
	const struct cache_groups *g = &c->engine.groups;
	int64_t pages = 0, most = INT32_MAX / page_tok;
	double work = (double)work_bytes(c, 0), here, server;
	double slope = ((double)work_bytes(c, most) - work) / (double)most;
	size_t unused, total;

	if (cudaMemGetInfo(&unused, &total) != cudaSuccess)
		return 0;
	server = c->env.memory_share * (double)total - weights;
	here = c->env.memory_share * (double)total - (double)(total - unused) - work;
	while (pages < most) {
		int64_t mid = most - (most - pages) / 2;
		double more = slope * (double)mid;

		if (groups_bytes(g, c->env.run_layer, c->env.n_run_layers, mid) + more <= here &&
		    groups_bytes(g, NULL, m->n_layers, mid) + more <= server)
			pages = mid;
		else
			most = mid - 1;
	}
	pages -= c->env.max_seqs + 1; /* see blocks_pages(); scratch */
	return pages > 0 ? pages * page_tok / c->env.block_tok : 0;
}

/* Set the planes and the state of one layer of the group, the scratch page included, from mem on.
 * Returns their bytes.  mem NULL: only count. */
static size_t lay_layer(const struct cache_group *g, char *mem, struct kv_cache *kv, void **state)
{
	const size_t n_page = (size_t)(g->n_page + 1);
	struct workspace w = workspace_at(mem);

	for (int i = 0; i < cache_layout(g->layout)->n_plane; i++)
		kv->plane[i] = workspace_take(&w, n_page, groups_plane_bytes(g, i));
	*state = workspace_take(&w, n_page, g->state_bytes);
	if (!g->state_bytes)
		*state = NULL;
	return w.used;
}

static enum ar_status take_cache(struct cuda *c, struct ar_err *err)
{
	int n = c->env.n_run_layers;
	struct kv_cache kv;
	size_t bytes = 0;
	char *mem = NULL;
	void *state;
	enum ar_status st;

	for (int i = 0; i < n; i++)
		if (!cuda_skips(c, i))
			bytes += lay_layer(attn_engine_group(&c->engine, i), NULL, &kv, &state);
	st = cuda_take(&c->device, &mem, bytes, "the KV cache (lower --num-gpu-blocks)", err);
	if (st)
		return st;
	c->pass.kv = calloc((size_t)n, sizeof *c->pass.kv);
	c->pass.state = calloc((size_t)n, sizeof *c->pass.state);
	if (!c->pass.kv || !c->pass.state)
		return ar_nomem(err);
	CU(cudaMemsetAsync(mem, 0, bytes, c->device.stream));
	for (int i = 0; i < n; i++)
		if (!cuda_skips(c, i))
			mem += lay_layer(attn_engine_group(&c->engine, i), mem, &c->pass.kv[i],
					 &c->pass.state[i]);
out:
	return st;
}

static enum ar_status take_rows(struct cuda *c, struct ar_err *err)
{
	enum ar_status st;

	if (c->env.listed_blocks)
		c->pass.rows.limit[ROW_PREFILL].max_page =
			blocks_pages(c->env.listed_blocks, c->env.block_tok, c->env.max_seqs,
				     c->engine.plan.page_tok);
	for (int i = 0; i < c->pass.rows.n_view; i++)
		if (c->pass.rows.view[i].group->n_page > c->pass.rows.limit[ROW_PREFILL].max_page)
			c->pass.rows.limit[ROW_PREFILL].max_page =
				c->pass.rows.view[i].group->n_page;
	c->pass.rows.bytes = rows_bytes(&c->pass.rows);
	st = cuda_take(&c->device, &c->pass.rows_dev, c->pass.rows.bytes, "the arrays of a batch",
		       err);
	if (st)
		return st;
	CU(cudaMallocHost(&c->pass.rows.mem, c->pass.rows.bytes));
out:
	return st;
}

/* Dense attention of the prefill rows, for compare(). */
static enum ar_status take_compared(struct cuda *c, struct ar_err *err)
{
	const struct attn_shape s = attn_engine_widest(&c->engine);
	int max_row = c->pass.rows.limit[ROW_PREFILL].max_row;
	size_t n = (size_t)max_row * (size_t)s.q_heads;
	enum ar_status st = cuda_take(&c->device, &c->pass.compared.out,
				      n * (size_t)s.head_dim * sizeof *c->pass.compared.out,
				      "the dense outputs", err);

	if (!st)
		st = cuda_take(&c->device, &c->pass.compared.lse, n * sizeof *c->pass.compared.lse,
			       "the dense log sums", err);
	if (!st)
		st = cuda_take(&c->device, &c->pass.compared.work, accuracy_work_bytes(&s, max_row),
			       "the distances of outputs", err);
	if (!st)
		st = cuda_take(&c->device, &c->pass.compared.skips,
			       2 * (size_t)s.kv_heads * sizeof *c->pass.compared.skips,
			       "the tiles that are skipped", err);
	return st;
}

/* Where layers differ, describe the groups of the KV cache. */
static void log_groups(const struct cuda *c)
{
	const struct cache_groups *g = &c->engine.groups;
	char text[96];

	for (int i = 0; i < g->n && g->n > 1; i++)
		if (*groups_describe(g, i, c->env.run_layer, c->env.n_run_layers, text,
				     sizeof text))
			log_info("KV cache of %s", text);
}

enum ar_status cuda_take_pool(struct cuda *c, int64_t num_blocks, struct ar_err *err)
{
	enum ar_status st = groups_open_blocks(&c->engine.groups, c->env.blocks, num_blocks,
					       c->env.block_tok, c->env.trace->n, err);

	if (!st)
		st = take_rows(c, err);
	if (!st)
		st = take_compared(c, err);
	if (!st)
		st = cuda_take(&c->device, &c->pass.work,
			       work_bytes(c, c->pass.rows.limit[ROW_PREFILL].max_page) -
				       beside_bytes(c) - lists_bytes(c),
			       "workspaces (lower --max-num-batched-tokens or --num-gpu-blocks)",
			       err);
	if (!st && beside_bytes(c))
		st = cuda_take(&c->device, &c->pass.beside, beside_bytes(c),
			       "sums of decodes (lower --num-gpu-blocks)", err);
	if (!st && lists_bytes(c))
		st = cuda_take(&c->device, &c->pass.lists, lists_bytes(c),
			       "lists of decodes (lower --max-num-seqs)", err);
	if (!st)
		st = cuda_take_drops(c, cuda_take, err);
	if (!st)
		st = take_cache(c, err);
	if (!st)
		st = cuda_open_aux(c, cuda_take, err);
	if (!st)
		st = cuda_take_share(c, cuda_take, err);
	if (st)
		return st;
	log_groups(c);
	attn_engine_log_aux(&c->engine);
	return st;
}
