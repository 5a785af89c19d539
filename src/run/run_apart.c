/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill and decodes apart: the engines of --prefill-replicas and --decode-replicas, and the link
 * between them. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <string.h>

#include "base/number.h"

/* Rates are those of the line, one way; latencies are a guess. */
static const struct kv_link {
	const char *name, *about;
	double bytes_s;
	int64_t ns;
} links[] = {
	{ "hdr200", "InfiniBand HDR, 200 Gb/s", 25e9, 10000 },
	{ "ndr400", "InfiniBand NDR or Ethernet, 400 Gb/s", 50e9, 10000 },
	{ "xdr800", "InfiniBand XDR, 800 Gb/s", 100e9, 10000 },
	{ "pcie5", "PCI Express 5, 16 lanes", 63e9, 5000 },
	{ "nvlink4", "NVLink 4 of an H100 or H200", 450e9, 5000 },
};

/* A transfer takes hours at most, so that no sum of times overflows. */
static const int64_t LEAST_RATE = 1000000, MOST_LATENCY_NS = 3600000000000;

static bool read_rate(const char *text, struct replay_apart *a)
{
	const char *colon = strchr(text, ':');
	char rate[64];
	int64_t n;

	if (!colon || (size_t)(colon - text) >= sizeof rate)
		return false;
	memcpy(rate, text, (size_t)(colon - text));
	rate[colon - text] = 0;
	if (!num_count(rate, &n) || n < LEAST_RATE || !num_time(colon + 1, &a->link_ns) ||
	    a->link_ns < 0 || a->link_ns > MOST_LATENCY_NS)
		return false;
	a->link_bytes_s = (double)n;
	return true;
}

enum ar_status run_read_apart(struct run_options *o, struct ar_err *err)
{
	struct replay_apart *a = &o->apart;
	char names[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		if (!strcmp(o->kv_link, links[i].name)) {
			a->link_bytes_s = links[i].bytes_s;
			a->link_ns = links[i].ns;
			return AR_OK;
		}
		used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", links[i].name);
	}
	if (read_rate(o->kv_link, a))
		return AR_OK;
	return ar_fail(
		err, AR_USAGE,
		"kv-link '%s': want %sor RATE:LATENCY, from 1MB (a second) and up to 1h, such as "
		"50GB:10us",
		o->kv_link, names);
}

enum ar_status run_check_apart(const struct run_options *o, struct ar_err *err)
{
	const struct replay_apart *a = &o->apart;

	if (!a->prefill != !a->decode)
		return ar_fail(err, AR_USAGE,
			       "prefill-replicas %" PRId64 ", decode-replicas %" PRId64
			       ": give both, or none",
			       a->prefill, a->decode);
	if (!a->prefill && opt_asked(o->group, "kv-link"))
		return ar_fail(err, AR_USAGE,
			       "kv-link has no effect without --prefill-replicas; leave it out");
	if (a->prefill && opt_given(o->group, "replicas"))
		return ar_fail(err, AR_USAGE,
			       "replicas has no effect with --prefill-replicas; leave it out");
	if (a->prefill && o->limits.order == SCHED_PRIORITY)
		return ar_fail(err, AR_USAGE,
			       "prefill-replicas: there is no order by priority for requests that "
			       "come with KV; leave --scheduling-policy out");
	return AR_OK;
}

enum ar_status run_set_apart(struct run_inputs *in, const struct run_options *o, struct ar_err *err)
{
	struct replay_apart *apart = &in->apart;
	const struct store_run *from = in->costs ? &in->costs->run : NULL;

	*apart = o->apart;
	if (!apart->prefill)
		return AR_OK;
	apart->block_bytes = in->memory.block_bytes * (from ? from->tp : in->model.tp);
	if (!apart->block_bytes)
		return ar_fail(err, AR_USAGE,
			       "prefill-replicas: without a model the bytes of a KV block are not "
			       "known; take --backend roofline");
	if (in->limits.group)
		return ar_fail(err, AR_USAGE,
			       "prefill-replicas: %s has layers of several kinds, whose KV blocks "
			       "do not travel yet; leave it out",
			       from ? from->model_name : in->model.name);
	if (in->limits.evict)
		return ar_fail(err, AR_USAGE,
			       "prefill-replicas: an evictor takes tokens out of the KV that "
			       "travels; leave it out");
	return AR_OK;
}

void run_print_apart(const struct run_inputs *in, const struct run_options *o)
{
	const struct replay_apart *a = &in->apart;
	char time[32];

	if (!a->prefill)
		return;
	printf("replicas  %" PRId64 " for prefill, %" PRId64 " for decodes, router %s; each has "
	       "what is said below\n",
	       a->prefill, a->decode, run_options_route(o).router->name);
	printf("KV link   %s: %.4g GB/s and %s, modelled; a KV block of all ranks has %.4g MB\n",
	       o->kv_link, a->link_bytes_s / 1e9,
	       num_time_str(time, sizeof time, (double)a->link_ns), (double)a->block_bytes / 1e6);
}
