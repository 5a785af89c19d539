/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel tracing with CUPTI's activity records.
 *
 * A launch leaves two records with the same correlation id: the kernel, and an external
 * correlation in front of the launch's API record.  The latter holds the scope (layer and phase)
 * that prof_phase() announced on the launching thread.  CUPTI fills our buffers with records in any
 * order.  prof_collect() reads them on the caller's thread, when the device is idle.
 *
 * All kernels of a CUDA graph have the correlation id of the graph's launch.  But each kernel has
 * the id of its node.  CUPTI calls back when capture creates a node and when instantiation clones
 * it.  A node has the scope announced at its capture; a clone has the scope of its original.
 */
#include "config.h"
#include "profiler/cupti/prof.h"

#include <assert.h>
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/grow.h"
#include "base/order.h"
#include "profiler/cupti/cupti_api.h"

static_assert(sizeof(cupti_kernel) == CUPTI_KERNEL_BYTES, "another layout of the kernel record");

enum {
	BUFFER_BYTES = 4 << 20,
	BUFFER_HEAD = 4096, /* struct buffer; the records after it are page-aligned */
	BUFFERS_AHEAD = 4,
	/* A buffer of CUPTI on the device: times of 12,500 kernels, more than an iteration has.
	 * With the default of 3,200,000 bytes a graph launch takes 0.6 ms, with these 0.4 ms. */
	DEVICE_BUFFER_BYTES = 400000,
};

/* clang-format off */
#define CUPTI_API(X)                                                                            \
	CUPTI_OWN(X) X(cuptiGetVersion) X(cuptiGetResultString) X(cuptiUnsubscribe)             \
	X(cuptiEnableCallback) X(cuptiGetGraphNodeId)                                           \
	X(cuptiFinalize) X(cuptiSetThreadIdType) X(cuptiActivitySetAttribute)                   \
	X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable) X(cuptiActivityDisable)        \
	X(cuptiActivityPushExternalCorrelationId) X(cuptiActivityPopExternalCorrelationId)      \
	X(cuptiActivityFlushAll) X(cuptiActivityGetNextRecord)                                  \
	X(cuptiActivityGetNumDroppedRecords)
/* clang-format on */

static struct {
#define X(f) __typeof__(f) *f;
	CUPTI_API(X)
#undef X
} api;

#if CUPTI_API_VERSION >= 130000
/* The calls that launch kernels.  cuBLAS may launch through the driver. */
static const CUpti_CallbackId runtime_launches[] = {
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
	CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000,
	CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
	CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000,
};
static const CUpti_CallbackId driver_launches[] = {
	CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
	CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
	CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
	CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
	CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
	CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
	CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
	CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};
#endif

static const CUpti_ActivityKind kinds[] = {
	CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
	CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
};

static const CUpti_CallbackId node_callbacks[] = {
	CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
	CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
};

static const CUpti_ExternalCorrelationKind scope_kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

#define N_OF(a) (sizeof(a) / sizeof *(a))

/* ---- buffers ---- */

struct buffer {
	struct buffer *next;
	size_t valid; /* bytes that hold records */
};

/* One pool for the process, because CUPTI passes no user pointer to the callbacks for buffers.
 * lock is never held during a call of CUPTI.  free holds zeroed buffers only. */
static struct {
	pthread_mutex_t lock;
	struct buffer *free, *full;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint8_t *records_of(struct buffer *b)
{
	return (uint8_t *)b + BUFFER_HEAD;
}

static struct buffer *buffer_new(void)
{
	struct buffer *b = aligned_alloc(BUFFER_HEAD, BUFFER_HEAD + BUFFER_BYTES);

	if (b)
		memset(b, 0, BUFFER_HEAD + BUFFER_BYTES);
	return b;
}

static void pool_push(struct buffer **list, struct buffer *b)
{
	pthread_mutex_lock(&pool.lock);
	b->next = *list;
	*list = b;
	pthread_mutex_unlock(&pool.lock);
}

/* If there is no memory, CUPTI gets no buffer and counts the records that it drops. */
static void CUPTIAPI on_request(uint8_t **data, size_t *size, size_t *max_records)
{
	struct buffer *b;

	pthread_mutex_lock(&pool.lock);
	b = pool.free;
	if (b)
		pool.free = b->next;
	pthread_mutex_unlock(&pool.lock);
	if (!b)
		b = buffer_new();
	*data = b ? records_of(b) : NULL;
	*size = b ? BUFFER_BYTES : 0;
	*max_records = 0;
}

static void CUPTIAPI on_complete(CUcontext ctx, uint32_t stream, uint8_t *data, size_t size,
				 size_t valid)
{
	struct buffer *b;

	(void)ctx;
	(void)stream;
	(void)size;
	if (!data)
		return;
	b = (struct buffer *)(void *)(data - BUFFER_HEAD);
	b->valid = valid;
	pool_push(&pool.full, b);
}

static void recycle(struct buffer *b)
{
	memset(records_of(b), 0, b->valid);
	b->valid = 0;
	pool_push(&pool.free, b);
}

static struct buffer *take_list(struct buffer **list)
{
	struct buffer *b;

	pthread_mutex_lock(&pool.lock);
	b = *list;
	*list = NULL;
	pthread_mutex_unlock(&pool.lock);
	return b;
}

/* Free the buffers of a list.  A buffer that CUPTI holds is in no list. */
static void pool_release(struct buffer **list)
{
	struct buffer *next;

	for (struct buffer *b = take_list(list); b; b = next) {
		next = b->next;
		free(b);
	}
}

/* ---- session ---- */

/* The scope of a launch. */
struct scope {
	uint32_t corr;
	uint64_t id;
};

/* The scope of a graph's node. */
struct node {
	uint64_t id, scope; /* id 0: a free slot */
};

struct prof {
	CUpti_SubscriberHandle subscriber;
	uint32_t version;
	bool pushed;		 /* prof_phase() has left an id on the thread's stack */
	uint64_t announced;	 /* scope of the next launches; 0: none yet */
	CUptiResult failed;	 /* first error of a push, pop or callback, which
					 * prof_collect() returns */
	struct node *node;	 /* open addressing, at most half full */
	size_t n_node, cap_node; /* cap_node: a power of two */
	struct prof_kernel *kernel;
	size_t n_kernel, cap_kernel;
	struct scope *scope;
	size_t n_scope, cap_scope;
	uint32_t last_corr; /* largest correlation id of earlier collections */
	bool collected;	    /* last_corr is valid */
	struct recent {
		const char *from, *name;
	} recent[256];		 /* intern_text()'s last answers, by a hash of the pointer */
	char **name;		 /* set of names, open addressing, at most half full */
	size_t n_name, cap_name; /* cap_name: a power of two */
	struct prof_loss loss;
};

/* Layer and phase in one number, which is never 0. */
static uint64_t scope_id(int layer, enum phase phase)
{
	return (uint64_t)1 << 32 | (uint64_t)(layer & 0xfff) << 8 | (uint64_t)phase;
}

static const char *result_name(CUptiResult r)
{
	const char *s = NULL;

	return api.cuptiGetResultString(r, &s) || !s ? "unknown result" : s;
}

static enum ar_status cupti_fail(CUptiResult r, const char *what, struct ar_err *err)
{
	return ar_fail(err, AR_NODEV, "%s failed: %s (%d); run without kernel tracing", what,
		       result_name(r), (int)r);
}

/* Call f; if it fails, set st and err and go to out. */
#define CUPTI(f, ...) \
	do { \
		CUptiResult cupti_r_ = api.f(__VA_ARGS__); \
		if (cupti_r_) { \
			st = cupti_fail(cupti_r_, #f, err); \
			goto out; \
		} \
	} while (0)

static enum ar_status load_cupti(uint32_t *version, struct ar_err *err)
{
	static const struct dynlib_sym syms[] = {
#define X(f) { #f, (void **)(void *)&api.f },
		CUPTI_API(X)
#undef X
			{ NULL, NULL }
	};
	enum ar_status st = dynlib_load("libcupti.so." CUDA_MAJOR, "ATTNREPLAY_CUPTI", syms, err);

	if (st)
		return st;
	CUPTI(cuptiGetVersion, version);
	/* 22 is CUDA 12.4, 130001 a CUDA 13. */
	if (*version / 10000 != CUPTI_API_VERSION / 10000)
		st = ar_fail(err, AR_NODEV,
			     "CUPTI has API version %u; this program needs the one "
			     "of CUDA " CUDA_MAJOR,
			     *version);
out:
	return st;
}

/* ---- nodes of graphs ---- */

static struct node *node_slot(struct node *table, size_t cap, uint64_t id)
{
	size_t i = (size_t)(id * 0x9e3779b97f4a7c15u >> 32) & (cap - 1);

	while (table[i].id && table[i].id != id)
		i = (i + 1) & (cap - 1);
	return &table[i];
}

/* The scope of a graph's node; 0: unknown node. */
static uint64_t node_scope(const struct prof *p, uint64_t id)
{
	return p->cap_node ? node_slot(p->node, p->cap_node, id)->scope : 0;
}

static bool nodes_grow(struct prof *p)
{
	size_t cap = p->cap_node ? 2 * p->cap_node : 1024;
	struct node *table;

	if (2 * (p->n_node + 1) <= p->cap_node)
		return true;
	table = calloc(cap, sizeof *table);
	if (!table)
		return false;
	for (size_t i = 0; i < p->cap_node; i++)
		if (p->node[i].id)
			*node_slot(table, cap, p->node[i].id) = p->node[i];
	free(p->node);
	p->node = table;
	p->cap_node = cap;
	return true;
}

static CUptiResult set_node(struct prof *p, uint64_t id, uint64_t scope)
{
	struct node *n;

	if (!nodes_grow(p))
		return CUPTI_ERROR_OUT_OF_MEMORY;
	n = node_slot(p->node, p->cap_node, id);
	p->n_node += !n->id;
	*n = (struct node){ id, scope };
	return CUPTI_SUCCESS;
}

/* Instantiation may also report a clone as created, before or after it reports the cloning.  The
 * scope from node_cloned() wins.  Kernels of a node without an id are counted as unattributed. */
static CUptiResult node_created(struct prof *p, const CUpti_GraphData *g)
{
	uint64_t id;

	if (!p->announced || api.cuptiGetGraphNodeId(g->node, &id) || node_scope(p, id))
		return CUPTI_SUCCESS;
	return set_node(p, id, p->announced);
}

static CUptiResult node_cloned(struct prof *p, const CUpti_GraphData *g)
{
	uint64_t id, from;

	if (api.cuptiGetGraphNodeId(g->originalNode, &from) || !node_scope(p, from) ||
	    api.cuptiGetGraphNodeId(g->node, &id))
		return CUPTI_SUCCESS;
	return set_node(p, id, node_scope(p, from));
}

/* Only node_callbacks[] are enabled. */
static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
				 const void *data)
{
	const CUpti_ResourceData *what = data;
	struct prof *p = user;
	CUptiResult r;

	(void)domain;
	r = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED ?
		    node_created(p, what->resourceDescriptor) :
		    node_cloned(p, what->resourceDescriptor);
	if (r && !p->failed)
		p->failed = r;
}

/* ---- opening and closing ---- */

enum { NAME_BYTES = 64 }; /* what CUPTI may write of a subscriber's name */

/* subscribe_as(): the name of another subscriber is put into other, where CUPTI knows it.
 * record_launches(): from now on, or no more. */
#if CUPTI_API_VERSION >= 130000
static_assert((int)NAME_BYTES >= CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN, "names are cut");

static CUptiResult subscribe_as(struct prof *p, char *other)
{
	CUpti_SubscriberParams params = {
		.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
		.subscriberName = PACKAGE_NAME,
		.oldSubscriberName = other,
		.oldSubscriberSize = NAME_BYTES,
	};

	return api.cuptiSubscribe_v2(&p->subscriber, on_callback, p, &params);
}

static CUptiResult record_launches(uint8_t on)
{
	CUptiResult first = CUPTI_SUCCESS, r;

	for (size_t i = 0; i < N_OF(runtime_launches); i++) {
		r = api.cuptiActivityEnableRuntimeApi(runtime_launches[i], on);
		first = first ? first : r;
	}
	for (size_t i = 0; i < N_OF(driver_launches); i++) {
		r = api.cuptiActivityEnableDriverApi(driver_launches[i], on);
		first = first ? first : r;
	}
	return first;
}
#else
static CUptiResult subscribe_as(struct prof *p, char *other)
{
	(void)other;
	return api.cuptiSubscribe(&p->subscriber, on_callback, p);
}

static CUptiResult record_launches(uint8_t on)
{
	CUptiResult (*set)(CUpti_ActivityKind) = on ? api.cuptiActivityEnable :
						      api.cuptiActivityDisable;
	CUptiResult runtime = set(CUPTI_ACTIVITY_KIND_RUNTIME);
	CUptiResult driver = set(CUPTI_ACTIVITY_KIND_DRIVER);

	return runtime ? runtime : driver;
}
#endif

static enum ar_status subscribe(struct prof *p, struct ar_err *err)
{
	char other[NAME_BYTES + 1] = "";
	CUptiResult r = subscribe_as(p, other);

	if (!r)
		return AR_OK;
	p->subscriber = NULL;
	if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
		return ar_fail(err, AR_NODEV,
			       "another profiler is attached (%s); run without it, "
			       "or without kernel tracing",
			       *other ? other : "unnamed");
	if (r == CUPTI_ERROR_UNKNOWN)
		return ar_fail(err, AR_NODEV, "CUPTI finds no usable NVIDIA driver (%s)",
			       result_name(r));
	return cupti_fail(r, "cuptiSubscribe", err);
}

static enum ar_status enable(const struct prof *p, struct ar_err *err)
{
	uint8_t one = 1;
	size_t size = sizeof one, device_bytes = DEVICE_BUFFER_BYTES,
	       size_bytes = sizeof device_bytes;
	enum ar_status st = AR_OK;
	CUptiResult r;

	CUPTI(cuptiSetThreadIdType, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
	CUPTI(cuptiActivitySetAttribute, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size,
	      &one);
	CUPTI(cuptiActivitySetAttribute, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size_bytes,
	      &device_bytes);
	CUPTI(cuptiActivityRegisterCallbacks, on_request, on_complete);
	r = record_launches(1);
	if (r) {
		st = cupti_fail(r, "recording launches", err);
		goto out;
	}
	for (size_t i = 0; i < N_OF(kinds); i++)
		CUPTI(cuptiActivityEnable, kinds[i]);
	for (size_t i = 0; i < N_OF(node_callbacks); i++)
		CUPTI(cuptiEnableCallback, 1, p->subscriber, CUPTI_CB_DOMAIN_RESOURCE,
		      node_callbacks[i]);
out:
	return st;
}

enum ar_status prof_open(struct prof **out, struct ar_err *err)
{
	struct prof *p = calloc(1, sizeof *p);
	enum ar_status st;

	*out = NULL;
	if (!p)
		return ar_nomem(err);
	st = load_cupti(&p->version, err);
	for (int i = 0; i < BUFFERS_AHEAD && !st; i++) {
		struct buffer *b = buffer_new();

		if (b)
			pool_push(&pool.free, b);
		else
			st = ar_nomem(err);
	}
	if (!st)
		st = subscribe(p, err);
	if (!st)
		st = enable(p, err);
	if (st)
		goto out;
	*out = p;
	p = NULL;
out:
	prof_close(p);
	return st;
}

static void detach(struct prof *p)
{
	if (p->pushed)
		api.cuptiActivityPopExternalCorrelationId(scope_kind, NULL);
	for (size_t i = 0; i < N_OF(node_callbacks); i++)
		api.cuptiEnableCallback(0, p->subscriber, CUPTI_CB_DOMAIN_RESOURCE,
					node_callbacks[i]);
	api.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	for (size_t i = 0; i < N_OF(kinds); i++)
		api.cuptiActivityDisable(kinds[i]);
	record_launches(0);
	api.cuptiUnsubscribe(p->subscriber);
	api.cuptiFinalize();
}

void prof_close(struct prof *p)
{
	if (!p)
		return;
	if (p->subscriber)
		detach(p);
	pool_release(&pool.full);
	pool_release(&pool.free);
	for (size_t i = 0; i < p->cap_name; i++)
		free(p->name[i]);
	free(p->name);
	free(p->kernel);
	free(p->scope);
	free(p->node);
	free(p);
}

uint32_t prof_api_version(const struct prof *p)
{
	return p->version;
}

const struct prof_loss *prof_loss(const struct prof *p)
{
	return &p->loss;
}

void prof_phase(void *ctx, int layer, enum phase phase)
{
	struct prof *p = ctx;
	CUptiResult r = CUPTI_SUCCESS;

	if (!p)
		return;
	if (p->pushed)
		r = api.cuptiActivityPopExternalCorrelationId(scope_kind, NULL);
	p->announced = scope_id(layer, phase);
	if (!r)
		r = api.cuptiActivityPushExternalCorrelationId(scope_kind, p->announced);
	p->pushed = !r;
	if (r && !p->failed)
		p->failed = r;
}

/* ---- records ---- */

static size_t name_hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	return (size_t)(h ^ h >> 32);
}

static char **name_slot(char **table, size_t cap, const char *s)
{
	size_t i = name_hash(s) & (cap - 1);

	while (table[i] && strcmp(table[i], s))
		i = (i + 1) & (cap - 1);
	return &table[i];
}

static bool names_grow(struct prof *p)
{
	size_t cap = p->cap_name ? 2 * p->cap_name : 256;
	char **table;

	if (2 * (p->n_name + 1) <= p->cap_name)
		return true;
	table = calloc(cap, sizeof *table);
	if (!table)
		return false;
	for (size_t i = 0; i < p->cap_name; i++)
		if (p->name[i])
			*name_slot(table, cap, p->name[i]) = p->name[i];
	free(p->name);
	p->name = table;
	p->cap_name = cap;
	return true;
}

/* A copy of s that lives as long as p; the text of a record goes with its module.  NULL: no
 * memory. */
static const char *intern_text(struct prof *p, const char *s)
{
	struct recent *r;
	char **slot;

	if (!s)
		s = "";
	r = &p->recent[(uintptr_t)s / 16 % N_OF(p->recent)];
	if (r->from == s && !strcmp(r->name, s))
		return r->name;
	if (!names_grow(p))
		return NULL;
	slot = name_slot(p->name, p->cap_name, s);
	if (!*slot) {
		*slot = strdup(s);
		p->n_name += *slot != NULL;
	}
	if (*slot)
		*r = (struct recent){ s, *slot };
	return *slot;
}

static bool add_kernel(struct prof *p, const cupti_kernel *r)
{
	struct prof_kernel *k;
	const char *name;

	p->loss.records++;
	if (p->collected && r->correlationId <= p->last_corr) {
		p->loss.late++;
		return true;
	}
	if (!r->start || !r->end || r->end < r->start) {
		p->loss.zero_ts++;
		return true;
	}
	name = intern_text(p, r->name);
	if (!name || !GROW(p->kernel, p->cap_kernel, p->n_kernel + 1))
		return false;
	k = &p->kernel[p->n_kernel++];
	*k = (struct prof_kernel){
		.name = name,
		.start_ns = (int64_t)r->start,
		.end_ns = (int64_t)r->end,
		.layer = PHASE_NO_LAYER,
		.phase = PHASE_NONE,
		.grid = { r->gridX, r->gridY, r->gridZ },
		.block = { r->blockX, r->blockY, r->blockZ },
		.cluster = { (int32_t)r->clusterX, (int32_t)r->clusterY, (int32_t)r->clusterZ },
		.regs = r->registersPerThread,
		.smem_static = r->staticSharedMemory,
		.smem_dynamic = r->dynamicSharedMemory,
		.smem_executed = (int32_t)r->sharedMemoryExecuted,
		.local_per_thread = (int32_t)r->localMemoryPerThread,
		.launch_type = r->launchType,
		.device = r->deviceId,
		.stream = r->streamId,
		.corr = r->correlationId,
		.graph_node = r->graphNodeId,
	};
	return true;
}

static bool add_scope(struct prof *p, const CUpti_ActivityExternalCorrelation *r)
{
	if (r->externalKind != scope_kind)
		return true;
	if (!GROW(p->scope, p->cap_scope, p->n_scope + 1))
		return false;
	p->scope[p->n_scope++] = (struct scope){ r->correlationId, r->externalId };
	return true;
}

static bool add_record(struct prof *p, const CUpti_Activity *r)
{
	if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
	    r->kind == CUPTI_ACTIVITY_KIND_KERNEL)
		return add_kernel(p, (const void *)r);
	if (r->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)
		return add_scope(p, (const void *)r);
	return true;
}

/* CUPTI stops reading at a record of a kind that it does not know.  The rest of the buffer is lost
 * and counted as one dropped record. */
static bool decode_buffer(struct prof *p, struct buffer *b)
{
	CUpti_Activity *r = NULL;
	CUptiResult res = CUPTI_SUCCESS;

	while (b->valid) {
		res = api.cuptiActivityGetNextRecord(records_of(b), b->valid, &r);
		if (res)
			break;
		if (!add_record(p, r))
			return false;
	}
	if (res && res != CUPTI_ERROR_MAX_LIMIT_REACHED)
		p->loss.dropped++;
	return true;
}

static enum ar_status decode_all(struct prof *p, struct ar_err *err)
{
	bool ok = true;
	struct buffer *next;

	for (struct buffer *b = take_list(&pool.full); b; b = next) {
		next = b->next;
		ok = ok && decode_buffer(p, b);
		recycle(b);
	}
	return ok ? AR_OK : ar_nomem(err);
}

static int by_corr(const void *a, const void *b)
{
	const struct scope *x = a, *y = b;

	return ORDER(x->corr, y->corr);
}

static int by_start(const void *a, const void *b)
{
	const struct prof_kernel *x = a, *y = b;
	const int c = ORDER(x->start_ns, y->start_ns);

	return c ? c : ORDER(x->corr, y->corr);
}

/* Records mostly come in order, where qsort() still allocates and copies. */
static void put_in_order(void *base, size_t n, size_t size, int (*cmp)(const void *, const void *))
{
	const char *a = base;
	size_t i = 1;

	while (i < n && cmp(a + (i - 1) * size, a + i * size) <= 0)
		i++;
	if (i < n)
		qsort(base, n, size, cmp);
}

/* The scope of a kernel; 0: unknown. */
static uint64_t scope_of(const struct prof *p, const struct prof_kernel *k)
{
	const struct scope key = { k->corr, 0 }, *s = NULL;

	if (k->graph_node)
		return node_scope(p, k->graph_node);
	if (p->n_scope)
		s = bsearch(&key, p->scope, p->n_scope, sizeof key, by_corr);
	return s ? s->id : 0;
}

static void attribute(struct prof *p)
{
	uint32_t last = p->last_corr;

	put_in_order(p->scope, p->n_scope, sizeof *p->scope, by_corr);
	for (size_t i = 0; i < p->n_kernel; i++) {
		struct prof_kernel *k = &p->kernel[i];
		uint64_t scope = scope_of(p, k);

		if (scope) {
			k->layer = (int32_t)(scope >> 8 & 0xfff);
			k->phase = (enum phase)(scope & 0xff);
		} else if (p->announced) {
			p->loss.unattributed++;
		}
		if (k->corr > last)
			last = k->corr;
	}
	p->collected = p->collected || p->n_kernel;
	p->last_corr = last;
	put_in_order(p->kernel, p->n_kernel, sizeof *p->kernel, by_start);
}

void prof_ahead(struct prof *p)
{
	const CUptiResult r = api.cuptiActivityFlushAll(0);

	if (r && !p->failed)
		p->failed = r;
}

enum ar_status prof_collect(struct prof *p, const struct prof_kernel **kernel, size_t *n,
			    struct ar_err *err)
{
	size_t dropped = 0;
	enum ar_status st;

	p->n_kernel = p->n_scope = 0;
	if (p->failed) {
		st = p->failed == CUPTI_ERROR_OUT_OF_MEMORY ?
			     ar_nomem(err) :
			     cupti_fail(p->failed, "keeping track of phases", err);
		p->failed = CUPTI_SUCCESS;
		goto out;
	}
	CUPTI(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	CUPTI(cuptiActivityGetNumDroppedRecords, NULL, 0, &dropped);
	p->loss.dropped += (int64_t)dropped;
	st = decode_all(p, err);
	if (st)
		goto out;
	attribute(p);
	*kernel = p->kernel;
	*n = p->n_kernel;
out:
	return st;
}
