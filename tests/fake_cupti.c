/* SPDX-License-Identifier: Apache-2.0 */
/* A fake CUPTI library.  The test announces launches.  The library delivers CUPTI's records of
 * them, out of order and longer than in the header. */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/cupti/cupti_api.h"
#include "tests/fake_cupti.h"

enum { MOST = 100000, KERNEL_BYTES = sizeof(cupti_kernel) + 16 };

static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static cupti_kernel kernel[MOST];
static CUpti_ActivityExternalCorrelation scope[MOST];
static unsigned n_kernel, n_scope;
static uint64_t stack[4];
static CUpti_CallbackFunc callback;
static void *callback_user;
static struct fake_cupti fake = { .version = CUPTI_API_VERSION };

struct fake_cupti *fake_cupti(void)
{
	return &fake;
}

void fake_launch(const char *name, uint32_t corr, uint64_t start, uint64_t end)
{
	cupti_kernel *k = &kernel[n_kernel++];

	fake.waiting = n_kernel;
	memset(k, 0, sizeof *k);
	k->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
	k->name = name;
	k->correlationId = corr;
	k->start = start;
	k->end = end;
	k->gridX = 132;
	k->gridY = k->gridZ = 1;
	k->blockX = 384;
	k->blockY = k->blockZ = 1;
	k->clusterX = 2;
	k->registersPerThread = 168;
	k->staticSharedMemory = 16;
	k->dynamicSharedMemory = 200000;
	k->sharedMemoryExecuted = 233472;
	k->localMemoryPerThread = 8;
	k->launchType = 1;
	k->deviceId = 3;
	k->streamId = 7;
	if (!fake.depth)
		return;
	scope[n_scope++] = (CUpti_ActivityExternalCorrelation){
		.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
		.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
		.externalId = stack[fake.depth - 1],
		.correlationId = corr,
	};
}

void fake_graph_launch(uint64_t id, uint32_t corr, uint64_t start, uint64_t end)
{
	fake_launch("node", corr, start, end);
	kernel[n_kernel - 1].graphId = 5;
	kernel[n_kernel - 1].graphNodeId = id;
}

void fake_node(uint64_t id, uint64_t from)
{
	CUpti_GraphData graph = { .node = (CUgraphNode)(uintptr_t)id,
				  .originalNode = (CUgraphNode)(uintptr_t)from };
	const CUpti_ResourceData data = { .resourceDescriptor = &graph };

	callback(callback_user, CUPTI_CB_DOMAIN_RESOURCE,
		 from ? CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED :
			CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
		 &data);
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id)
{
	*id = (uint64_t)(uintptr_t)node;
	return (CUptiResult)fake.node;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
				CUpti_CallbackDomain domain, CUpti_CallbackId id)
{
	(void)subscriber;
	(void)id;
	fake.callbacks += domain == CUPTI_CB_DOMAIN_RESOURCE ? enable ? 1 : -1 : 100;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version)
{
	*version = fake.version;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **str)
{
	*str = result == CUPTI_ERROR_UNKNOWN ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_ERROR_FAKE";
	return CUPTI_SUCCESS;
}

static CUptiResult subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function,
			     void *user)
{
	callback = function;
	callback_user = user;
	if (fake.subscribe)
		return (CUptiResult)fake.subscribe;
	fake.subscribed++;
	*subscriber = (CUpti_SubscriberHandle)(void *)&fake;
	return CUPTI_SUCCESS;
}

#if CUPTI_API_VERSION >= 130000
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function,
			      void *user, CUpti_SubscriberParams *params)
{
	if (fake.subscribe == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
		strncpy(params->oldSubscriberName, "other tool", params->oldSubscriberSize);
	return subscribe(subscriber, function, user);
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable)
{
	(void)cbid;
	fake.calls += enable ? 1 : -1;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable)
{
	return cuptiActivityEnableRuntimeApi(cbid, enable);
}
#else
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function,
			   void *user)
{
	return subscribe(subscriber, function, user);
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
	(void)subscriber;
	fake.subscribed--;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize(void)
{
	fake.finalized++;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type)
{
	(void)type;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t *size, void *value)
{
	const uint8_t *flag = value;

	if (attr == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER)
		fake.zeroed = *size == 1 && *flag;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
					   CUpti_BuffersCallbackCompleteFunc completed)
{
	request = requested;
	complete = completed;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
	fake.kinds++;
	return (CUptiResult)(kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? fake.enable : 0);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
	(void)kind;
	fake.kinds--;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
	(void)kind;
	if (fake.push)
		return (CUptiResult)fake.push;
	stack[fake.depth++] = id;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
						  uint64_t *last)
{
	(void)kind;
	(void)last;
	fake.depth--;
	return CUPTI_SUCCESS;
}

/* ---- delivery ---- */

static uint8_t *buffer;
static size_t size, used;

static void deliver(void)
{
	if (buffer)
		complete(NULL, 0, buffer, size, used);
	buffer = NULL;
}

static void put(const void *record, size_t n, size_t stride)
{
	size_t most;

	if (buffer && used + stride > size)
		deliver();
	if (!buffer) {
		used = 0;
		request(&buffer, &size, &most);
		for (size_t i = 0; buffer && i < size; i += 512)
			fake.dirty += buffer[i] != 0;
	}
	if (!buffer) {
		fake.dropped++;
		return;
	}
	memcpy(buffer + used, record, n);
	used += stride;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
	if (fake.flush)
		return (CUptiResult)fake.flush;
	fake.forced += flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED;
	fake.waiting = 0;
	for (unsigned i = n_kernel; i-- > 0;)
		put(&kernel[i], sizeof kernel[i], KERNEL_BYTES);
	for (unsigned i = 0; i < n_scope; i++)
		put(&scope[i], sizeof scope[i], sizeof scope[i]);
	n_kernel = n_scope = 0;
	deliver();
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext ctx, uint32_t stream, size_t *dropped)
{
	(void)ctx;
	(void)stream;
	*dropped = fake.dropped;
	fake.dropped = 0;
	return CUPTI_SUCCESS;
}

static size_t stride(const CUpti_Activity *r)
{
	return r->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION ? sizeof *scope : KERNEL_BYTES;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *data, size_t valid, CUpti_Activity **record)
{
	CUpti_Activity *next = (void *)data;

	if (*record)
		next = (void *)((uint8_t *)*record + stride(*record));
	if ((uint8_t *)next >= data + valid)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = next;
	return CUPTI_SUCCESS;
}
