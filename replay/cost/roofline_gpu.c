/* SPDX-License-Identifier: Apache-2.0 */
/* Files of GPUs for the roofline model.  A file is a JSON object with peak rates, "launch_ns",
 * "graph_launch_ns", and "memory_bytes" where it is known, as are "link" and "link_gbps", the link
 * to other GPUs, and "ring", what a ring of them reaches.  "phases" has the rates of each phase;
 * "selectors" and "executors" have the rates of some selectors and executors.  "formats", "experts"
 * and "kv", which may be missing, have those of number formats.  "engines", which may be missing,
 * has an object with such members for some engines. */
#include "config.h"
#include "replay/cost/roofline_gpu.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/binfile.h"
#include "base/data.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "base/text.h"
#include "kernels/exec/executor.h"

enum { FILE_MAX = 1 << 20 };

static const double share_min = 0.0001, share_max = 10, rate_max = 1e9, edge_max = 1e6;
static const int64_t time_max = 1000000000; /* a second */
static const int64_t memory_max = (int64_t)1 << 50;

const char *const roofline_gpu_names[] = { "a100", "a100-40gb", "h100",		"h200",
					   "l40s", "rtx-4090",	"rtx-pro-6000", NULL };

/* ---- kinds ---- */

static const char *phase_name(int phase)
{
	static const char *const names[] = {
#define X(name, id, core, text) [id] = #name,
		PHASE_MAP(X)
#undef X
	};

	return phase > 0 && phase < PHASE_COUNT ? names[phase] : NULL;
}

static int selector_count(void)
{
	int n = 0;

	while (selectors[n])
		n++;
	return n;
}

static int executor_count(void)
{
	int n = 0;

	while (executors[n])
		n++;
	assert(n <= EXECUTORS_MAX);
	return n;
}

int roofline_selector_kind(const char *name)
{
	for (int i = 0; i < selector_count(); i++)
		if (!strcmp(selectors[i]->name, name))
			return ROOFLINE_SELECTORS + i;
	return -1;
}

int roofline_executor_kind(const char *name)
{
	for (int i = 0; i < executor_count(); i++)
		if (!strcmp(executors[i]->name, name))
			return ROOFLINE_EXECUTORS + i;
	return -1;
}

static int format_kind(const char *name)
{
	int i = format_find(name);

	return i > FORMAT_BF16 ? ROOFLINE_FORMATS + i : -1;
}

static int expert_kind(const char *name)
{
	int i = format_find(name);

	return i < 0 ? i : ROOFLINE_EXPERTS + i;
}

int roofline_cache_kind(const struct cache_layout *l)
{
	int i = (int)(cache_layout(l) - cache_layouts);

	assert(i < CACHES_MAX);
	return ROOFLINE_CACHES + i;
}

static int cache_kind(const char *name)
{
	const struct cache_layout *l = cache_layout_find(name);

	return l ? roofline_cache_kind(l) : -1;
}

static const char *selector_name(int i)
{
	return i < selector_count() ? selectors[i]->name : NULL;
}

static const char *executor_name(int i)
{
	return i < executor_count() ? executors[i]->name : NULL;
}

static const char *expert_of(int i)
{
	return i < FORMATS ? format_name((enum format_kind)i) : NULL;
}

static const char *format_of(int i)
{
	return i > FORMAT_BF16 ? expert_of(i) : NULL;
}

static const char *cache_name(int i)
{
	int n = 0;

	while (cache_layouts[n].name)
		n++;
	return i < n ? cache_layouts[i].name : NULL;
}

static const char *phase_of(int i)
{
	return phase_name(i + 1);
}

static int phase_kind(const char *name)
{
	for (int p = 1; p < PHASE_COUNT; p++)
		if (phase_name(p) && !strcasecmp(phase_name(p), name))
			return p;
	return -1;
}

/* The kinds of a member of the file: from .. from + n. */
static const struct group {
	const char *key, *prefix;
	int (*kind)(const char *name);
	const char *(*name)(int i); /* of kind from + i; NULL: it has none */
	int from;
	bool whole; /* every kind must be there, or its stand-in */
	bool extra; /* the member may be missing */
	bool each;  /* fixed_ns is of each launch */
} groups[] = {
	{ "phases", "", phase_kind, phase_of, 1, true, false, false },
	{ "selectors", "select ", roofline_selector_kind, selector_name, ROOFLINE_SELECTORS, false,
	  false, false },
	{ "executors", "attend ", roofline_executor_kind, executor_name, ROOFLINE_EXECUTORS, false,
	  false, false },
	{ "formats", "linear ", format_kind, format_of, ROOFLINE_FORMATS, false, true, true },
	{ "experts", "experts ", expert_kind, expert_of, ROOFLINE_EXPERTS, false, true, true },
	{ "kv", "decode ", cache_kind, cache_name, ROOFLINE_CACHES, false, true, false },
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

/* The name of a kind in its group; NULL: there is none. */
static const char *member_name(const struct group *g, int kind, char *buf, size_t n)
{
	const char *name = g->name(kind - g->from);

	if (!name)
		return NULL;
	snprintf(buf, n, "%s", name);
	for (char *c = buf; g->whole && *c; c++)
		*c = (char)(*c | 0x20); /* the names of phases are in upper case */
	return buf;
}

static const struct group *group_of(int kind)
{
	int g = N_GROUPS - 1;

	while (g && kind < groups[g].from)
		g--;
	return &groups[g];
}

const char *roofline_kind_name(int kind, char *buf, size_t n)
{
	const struct group *g = group_of(kind);
	char name[64];

	if (kind < 1 || kind >= ROOFLINE_KINDS || !member_name(g, kind, name, sizeof name))
		return NULL;
	snprintf(buf, n, "%s%s", g->prefix, name);
	return buf;
}

/* ---- reading ---- */

static enum ar_status bad_key(const char *path, const char *key, const char *want,
			      struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: '%.96s': want %s", path, key, want);
}

static enum ar_status get_rate(struct roofline_rate *r, const cJSON *o, const char *key,
			       const char *path, struct ar_err *err)
{
	char where[160];

	snprintf(where, sizeof where, "%s.compute", key);
	if (!json_real(cJSON_GetObjectItemCaseSensitive(o, "compute"), share_min, share_max,
		       &r->compute))
		return bad_key(path, where, "a share of the peak from 0.0001 to 10", err);
	snprintf(where, sizeof where, "%s.memory", key);
	if (!json_real(cJSON_GetObjectItemCaseSensitive(o, "memory"), share_min, share_max,
		       &r->memory))
		return bad_key(path, where, "a share of the peak from 0.0001 to 10", err);
	snprintf(where, sizeof where, "%s.fixed_ns", key);
	if (!json_int(cJSON_GetObjectItemCaseSensitive(o, "fixed_ns"), 0, time_max, &r->fixed_ns))
		return bad_key(path, where, "a whole number of ns, at most a second", err);
	snprintf(where, sizeof where, "%s.edge", key);
	if (cJSON_HasObjectItem(o, "edge") &&
	    !json_real(cJSON_GetObjectItemCaseSensitive(o, "edge"), 0, edge_max, &r->edge))
		return bad_key(path, where, "a number from 0 to 1e6", err);
	return AR_OK;
}

/* For each phase, the phase whose rate replaces a missing one; PHASE_NONE: a file must have it. */
static const int stand_in[PHASE_COUNT] = {
	[PHASE_MIX] = PHASE_ATTEND,
	[PHASE_DROP] = PHASE_SELECT,
	[PHASE_LATENT] = PHASE_LINEAR,
	[PHASE_WALK] = PHASE_ATTEND,
	[PHASE_META] = PHASE_CACHE,
	[PHASE_SHARE] = PHASE_CACHE, /* which nothing reads: no tokens are copied */
	[PHASE_EVICT] = PHASE_SELECT,
	[PHASE_COMM] = PHASE_LINEAR,	    /* which nothing reads: see comm.h */
	[PHASE_COMM_SELECT] = PHASE_LINEAR, /* the same */
};

/* Rates to read: of the GPU or of an engine.  key: of the object that has them, with a dot. */
struct rates {
	struct roofline_rate *rate;
	bool *own;
	const char *key;
};

static enum ar_status get_group(const struct rates *to, const struct group *group, const cJSON *o,
				const char *path, struct ar_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, group->key), *v;
	enum ar_status st;
	char key[128];

	cJSON_ArrayForEach(v, list) {
		int kind = v->string ? group->kind(v->string) : -1;

		snprintf(key, sizeof key, "%s%s.%.64s", to->key, group->key,
			 v->string ? v->string : "");
		if (kind < 0)
			return bad_key(path, key, "a name that this program has", err);
		st = get_rate(&to->rate[kind], v, key, path, err);
		if (st)
			return st;
		to->rate[kind].each = group->each;
		to->own[kind] = true;
	}
	return AR_OK;
}

/* Rates that a group lacks are those of their stand-ins. */
static enum ar_status fill_group(const struct rates *to, const struct group *group,
				 const char *path, struct ar_err *err)
{
	char key[96], name[64];

	for (int p = 1; p < PHASE_COUNT; p++) {
		if (!member_name(group, p, name, sizeof name) || to->own[p])
			continue;
		if (stand_in[p]) {
			to->rate[p] = to->rate[stand_in[p]];
			continue;
		}
		snprintf(key, sizeof key, "%s.%s", group->key, name);
		return bad_key(path, key, "an object with compute, memory and fixed_ns", err);
	}
	return AR_OK;
}

static enum ar_status get_times(int64_t *launch, int64_t *graph, const cJSON *o, const char *prefix,
				const char *path, struct ar_err *err)
{
	const struct {
		const char *key;
		int64_t *to;
	} times[] = { { "launch_ns", launch }, { "graph_launch_ns", graph } };
	char key[96];

	for (size_t i = 0; i < 2; i++) {
		snprintf(key, sizeof key, "%s%s", prefix, times[i].key);
		if (!json_int(cJSON_GetObjectItemCaseSensitive(o, times[i].key), 0, time_max,
			      times[i].to))
			return bad_key(path, key, "a whole number of ns, at most a second", err);
	}
	return AR_OK;
}

static enum ar_status get_peaks(struct roofline_gpu *g, const cJSON *o, const char *path,
				struct ar_err *err)
{
	const struct {
		const char *key;
		double *to;
	} peaks[] = { { "tflops", &g->tflops }, { "gbps", &g->gbps } };
	enum ar_status st;

	for (size_t i = 0; i < 2; i++)
		if (!json_real(cJSON_GetObjectItemCaseSensitive(o, peaks[i].key), 0.001, rate_max,
			       peaks[i].to))
			return bad_key(path, peaks[i].key, "a number from 0.001 to 1e9", err);
	st = get_times(&g->launch_ns, &g->graph_launch_ns, o, "", path, err);
	if (st)
		return st;
	if (cJSON_HasObjectItem(o, "tflops_fp8") &&
	    !json_real(cJSON_GetObjectItemCaseSensitive(o, "tflops_fp8"), 0.001, rate_max,
		       &g->tflops_fp8))
		return bad_key(path, "tflops_fp8", "a number from 0.001 to 1e9", err);
	if (cJSON_HasObjectItem(o, "memory_bytes") &&
	    !json_int(cJSON_GetObjectItemCaseSensitive(o, "memory_bytes"), 1 << 20, memory_max,
		      &g->memory_bytes))
		return bad_key(path, "memory_bytes", "a whole number of bytes, from 2^20 to 2^50",
			       err);
	return AR_OK;
}

static void get_text(const cJSON *o, const char *key, char *to, size_t n)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	snprintf(to, n, "%s", s ? s : "");
}

/* The rates of an engine.  What it says of its errors may be missing. */
static enum ar_status get_engine(struct roofline_engine *e, const cJSON *o, const char *path,
				 struct ar_err *err)
{
	const struct {
		const char *key, *want;
		double *to, min, max;
	} reals[] = {
		{ "error", "a share in percent, from 0 to 1000", &e->error, 0, 1000 },
		{ "error_experts", "a share in percent, from 0 to 1000", &e->error_experts, 0,
		  1000 },
		{ "draws", "an exponent from 0.1 to 1", &e->draws, 0.1, 1 },
	};
	char prefix[64], key[96];
	const struct rates to = { e->rate, e->own, prefix };
	enum ar_status st;

	snprintf(e->name, sizeof e->name, "%s", o->string ? o->string : "");
	snprintf(prefix, sizeof prefix, "engines.%s.", e->name);
	get_text(o, "about", e->about, sizeof e->about);
	e->draws = 1;
	for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
		snprintf(key, sizeof key, "%s%s", prefix, reals[i].key);
		if (cJSON_HasObjectItem(o, reals[i].key) &&
		    !json_real(cJSON_GetObjectItemCaseSensitive(o, reals[i].key), reals[i].min,
			       reals[i].max, reals[i].to))
			return bad_key(path, key, reals[i].want, err);
	}
	st = get_times(&e->launch_ns, &e->graph_launch_ns, o, prefix, path, err);
	if (!st)
		st = decode_walk_load(&e->walk, o, prefix, path, err);
	if (!st)
		st = comm_ring_load(&e->ring, o, prefix, path, err);
	for (int i = 0; i < N_GROUPS && !st; i++)
		st = get_group(&to, &groups[i], o, path, err);
	for (int kind = 0; kind < ROOFLINE_KINDS; kind++)
		e->rate[kind].each = true;
	return st;
}

static enum ar_status get_engines(struct roofline_gpu *g, const cJSON *o, const char *path,
				  struct ar_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "engines"), *v;
	enum ar_status st;

	cJSON_ArrayForEach(v, list) {
		if (g->n_engines == ROOFLINE_ENGINES_MAX)
			return bad_key(path, "engines", "at most 4 engines", err);
		st = get_engine(&g->engine[g->n_engines++], v, path, err);
		if (st)
			return st;
	}
	return AR_OK;
}

/* The link, whose members may be missing together. */
static enum ar_status get_link(struct roofline_gpu *g, const cJSON *o, const char *path,
			       struct ar_err *err)
{
	const cJSON *rate = cJSON_GetObjectItemCaseSensitive(o, "link_gbps");
	enum ar_status st = comm_ring_load(&g->ring, o, "", path, err);

	if (st || (!rate && !(g->ring.share > 0)))
		return st;
	get_text(o, "link", g->link, sizeof g->link);
	if (!json_real(rate, 0.001, rate_max, &g->link_gbps))
		return bad_key(path, "link_gbps", "a number from 0.001 to 1e9", err);
	return g->ring.share > 0 ? AR_OK : bad_key(path, "ring", "an object beside link_gbps", err);
}

static enum ar_status parse_gpu(struct roofline_gpu *g, const char *text, const char *path,
				struct ar_err *err)
{
	const struct rates to = { g->rate, g->own, "" };
	cJSON *o;
	enum ar_status st = json_parse_file(&o, text, path, err);

	if (st)
		return st;
	get_text(o, "about", g->about, sizeof g->about);
	get_text(o, "source", g->source, sizeof g->source);
	st = get_peaks(g, o, path, err);
	if (!st)
		st = get_link(g, o, path, err);
	for (int i = 0; i < N_GROUPS && !st; i++) {
		st = get_group(&to, &groups[i], o, path, err);
		if (!st && groups[i].whole)
			st = fill_group(&to, &groups[i], path, err);
	}
	if (!st)
		st = get_engines(g, o, path, err);
	cJSON_Delete(o);
	return st;
}

/* A file that exists, else a preset. */
static bool find_file(const char *name, char *path, size_t n)
{
	struct stat s;

	if (!stat(name, &s)) {
		int got = snprintf(path, n, "%s", name);

		return got > 0 && (size_t)got < n;
	}
	for (int i = 0; roofline_gpu_names[i]; i++)
		if (!strcmp(roofline_gpu_names[i], name)) {
			char preset[96];

			snprintf(preset, sizeof preset, "replay/cost/gpus/%s.json", name);
			return data_find(preset, path, n);
		}
	return false;
}

static enum ar_status unknown_gpu(const char *name, struct ar_err *err)
{
	char all[128] = "";
	size_t n = 0;

	for (int i = 0; roofline_gpu_names[i] && n < sizeof all; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "",
				      roofline_gpu_names[i]);
	return ar_fail(err, AR_DATA,
		       "%s: no such file and no GPU of this name; give one of %s, or a file of "
		       "'attnreplay calibrate roofline'",
		       name, all);
}

enum ar_status roofline_gpu_load(struct roofline_gpu *g, const char *name_or_path,
				 struct ar_err *err)
{
	char path[PATH_MAX], *text;
	enum ar_status st;

	*g = (struct roofline_gpu){ 0 };
	snprintf(g->name, sizeof g->name, "%s", name_or_path);
	if (!find_file(name_or_path, path, sizeof path))
		return unknown_gpu(name_or_path, err);
	st = text_read(&text, path, FILE_MAX, err);
	if (st)
		return st;
	st = parse_gpu(g, text, path, err);
	free(text);
	return st;
}

const struct roofline_engine *roofline_gpu_take(struct roofline_gpu *g, const char *policy)
{
	const struct roofline_engine *e = NULL;

	for (int i = 0; i < g->n_engines; i++)
		if (!strncmp(policy, g->engine[i].name, strlen(g->engine[i].name)))
			e = &g->engine[i];
	if (!e)
		return NULL;
	g->walk = e->walk;
	if (e->ring.share > 0)
		g->ring = e->ring;
	g->launch_ns = e->launch_ns;
	g->graph_launch_ns = e->graph_launch_ns;
	for (int kind = 0; kind < ROOFLINE_KINDS; kind++) {
		if (!e->own[kind])
			continue;
		g->rate[kind] = e->rate[kind];
		g->own[kind] = true;
	}
	return e;
}

/* ---- writing ---- */

static void put_rate(const char *name, const struct roofline_rate *r, bool first,
		     const char *indent, FILE *f)
{
	fprintf(f, "%s\n%s  \"%s\": {\"compute\": %.6g, \"memory\": %.6g, \"fixed_ns\": %lld",
		first ? "" : ",", indent, name, r->compute, r->memory, (long long)r->fixed_ns);
	if (r->edge > 0)
		fprintf(f, ", \"edge\": %.6g", r->edge);
	fputc('}', f);
}

static void put_group(const struct roofline_rate *rate, const bool *own, const struct group *group,
		      bool any, const char *indent, FILE *f)
{
	bool first = true;
	char name[64];

	for (int k = group->from; k < ROOFLINE_KINDS && group_of(k) == group; k++)
		any = any || own[k];
	if (!any)
		return;
	fprintf(f, ",\n%s\"%s\": {", indent, group->key);
	for (int k = group->from; k < ROOFLINE_KINDS && group_of(k) == group; k++) {
		if (!own[k] || !member_name(group, k, name, sizeof name))
			continue;
		put_rate(name, &rate[k], first, indent, f);
		first = false;
	}
	fprintf(f, "%s%s}", first ? "" : "\n", first ? "" : indent);
}

static void put_engine(const struct roofline_engine *e, bool first, FILE *f)
{
	fputs(first ? "\n    " : ",\n    ", f);
	text_put_json(e->name, f);
	fputs(": {\n      \"about\": ", f);
	text_put_json(e->about, f);
	if (e->error > 0)
		fprintf(f, ",\n      \"error\": %.6g,\n      \"error_experts\": %.6g", e->error,
			e->error_experts);
	fprintf(f,
		",\n      \"launch_ns\": %lld,\n      \"graph_launch_ns\": %lld,\n"
		"      \"draws\": %.6g",
		(long long)e->launch_ns, (long long)e->graph_launch_ns, e->draws);
	decode_walk_put(&e->walk, f);
	comm_ring_put(&e->ring, "      ", f);
	for (int i = 0; i < N_GROUPS; i++)
		put_group(e->rate, e->own, &groups[i], false, "      ", f);
	fputs("\n    }", f);
}

static void put_link(const struct roofline_gpu *g, FILE *f)
{
	if (!(g->link_gbps > 0))
		return;
	fputs(",\n  \"link\": ", f);
	text_put_json(g->link, f);
	fprintf(f, ",\n  \"link_gbps\": %.10g", g->link_gbps);
	comm_ring_put(&g->ring, "  ", f);
}

enum ar_status roofline_gpu_write(const struct roofline_gpu *g, const char *path,
				  struct ar_err *err)
{
	struct outfile out = { 0 };
	enum ar_status st = outfile_open(&out, path, err);

	if (st)
		return st;
	fputs("{\n  \"about\": ", out.f);
	text_put_json(g->about, out.f);
	fputs(",\n  \"source\": ", out.f);
	text_put_json(g->source, out.f);
	fprintf(out.f,
		",\n  \"tflops\": %.10g,\n  \"gbps\": %.10g,\n  \"launch_ns\": %lld,\n"
		"  \"graph_launch_ns\": %lld",
		g->tflops, g->gbps, (long long)g->launch_ns, (long long)g->graph_launch_ns);
	if (g->tflops_fp8 > 0)
		fprintf(out.f, ",\n  \"tflops_fp8\": %.10g", g->tflops_fp8);
	if (g->memory_bytes)
		fprintf(out.f, ",\n  \"memory_bytes\": %lld", (long long)g->memory_bytes);
	put_link(g, out.f);
	for (int i = 0; i < N_GROUPS; i++)
		put_group(g->rate, g->own, &groups[i], !groups[i].extra, "  ", out.f);
	fputs(g->n_engines ? ",\n  \"engines\": {" : "", out.f);
	for (int i = 0; i < g->n_engines; i++)
		put_engine(&g->engine[i], !i, out.f);
	fputs(g->n_engines ? "\n  }\n}\n" : "\n}\n", out.f);
	st = outfile_commit(&out, err);
	outfile_release(&out);
	return st;
}
