/* SPDX-License-Identifier: Apache-2.0 */
/* Files of host models.  An object with the keys of HOST_TIMES, "about", and the captured sizes. */
#include "config.h"
#include "replay/host/host.h"

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

enum { FILE_MAX = 1 << 20, TOKENS_MAX = 1 << 30 };

/* One hour: no host works longer on a part of an iteration. */
static const int64_t time_max = 3600ll * 1000000000;
static const int64_t spread_max = 1000000; /* a thousand times as long */

const char *const host_keys[] = {
#define X(name, key, text) key,
	HOST_TIMES(X)
#undef X
};

const char *const host_spread_keys[] = { "graph_spread", "pieces_spread", "eager_spread" };

static enum ar_status bad_key(const char *path, const char *key, const char *want,
			      struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: '%.64s': want %s", path, key, want);
}

static enum ar_status get_times(struct host *h, const cJSON *o, const char *path,
				struct ar_err *err)
{
	for (int i = 0; i < HOST_N_TIMES; i++) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, host_keys[i]);

		if (i >= HOST_FRONT && !v)
			continue;
		if (!json_int(v, 0, time_max, &h->ns[i]))
			return bad_key(path, host_keys[i], "a whole number of ns, at most an hour",
				       err);
	}
	return AR_OK;
}

static enum ar_status get_sizes(struct host *h, const cJSON *o, const char *path,
				struct ar_err *err)
{
	static const char key[] = "cudagraph_capture_sizes";
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key), *v;
	int64_t n;

	if (!cJSON_IsArray(list))
		return bad_key(path, key, "an array of numbers of tokens", err);
	cJSON_ArrayForEach(v, list) {
		if (!json_int(v, 1, TOKENS_MAX, &n))
			return bad_key(path, key, "an array of numbers of tokens", err);
		h->max_captured = n > h->max_captured ? n : h->max_captured;
	}
	return AR_OK;
}

/* A spread that is not there is 0. */
static enum ar_status get_spread(struct host *h, enum host_kind kind, const cJSON *o,
				 const char *path, struct ar_err *err)
{
	const char *key = host_spread_keys[kind];
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!list)
		return AR_OK;
	for (int i = 0; i < HOST_SPREAD; i++)
		if (cJSON_GetArraySize(list) != HOST_SPREAD ||
		    !json_int(cJSON_GetArrayItem(list, i), 1, spread_max, &h->spread[kind][i]))
			return bad_key(path, key,
				       "32 whole numbers of thousandths, from 1 to 1000000", err);
	return AR_OK;
}

static enum ar_status get_probe(struct host *h, const cJSON *o, const char *path,
				struct ar_err *err)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, "probe");

	return !v || probe_read(&h->probe, v) ?
		       AR_OK :
		       bad_key(path, "probe", "what 'attnreplay bench host --json' writes", err);
}

static enum ar_status parse_host(struct host *h, const char *text, const char *path,
				 struct ar_err *err)
{
	const char *about;
	cJSON *o;
	enum ar_status st = json_parse_file(&o, text, path, err);

	if (st)
		return st;
	about = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "about"));
	snprintf(h->about, sizeof h->about, "%s", about ? about : "");
	st = cJSON_IsObject(o) ? get_times(h, o, path, err) :
				 ar_fail(err, AR_DATA, "%s: not a JSON object", path);
	if (!st)
		st = get_sizes(h, o, path, err);
	for (int k = 0; k < HOST_KINDS && !st; k++)
		st = get_spread(h, k, o, path, err);
	if (!st)
		st = get_probe(h, o, path, err);
	cJSON_Delete(o);
	return st;
}

bool host_find(const char *name_or_path, char *path, size_t n)
{
	char preset[64 + sizeof "replay/host/presets/.json"];
	struct stat s;
	int got;

	if (!stat(name_or_path, &s)) {
		got = snprintf(path, n, "%s", name_or_path);
		return got > 0 && (size_t)got < n;
	}
	got = snprintf(preset, sizeof preset, "replay/host/presets/%s.json", name_or_path);
	return got > 0 && (size_t)got < sizeof preset && !strchr(name_or_path, '/') &&
	       data_find(preset, path, n);
}

enum ar_status host_load_file(struct host *h, const char *name_or_path, struct ar_err *err)
{
	char path[PATH_MAX], *text;
	enum ar_status st;

	*h = (struct host){ 0 };
	snprintf(h->name, sizeof h->name, "%s", name_or_path);
	if (!strcmp(name_or_path, "none"))
		return AR_OK;
	if (!host_find(name_or_path, path, sizeof path))
		return ar_fail(err, AR_DATA,
			       "%s: no such file and no host preset of this name; give a file of "
			       "'attnreplay calibrate host', a preset such as vllm-0.24, or none",
			       name_or_path);
	st = text_read(&text, path, FILE_MAX, err);
	if (st)
		return st;
	st = parse_host(h, text, path, err);
	free(text);
	return st;
}

static bool add_list(cJSON *o, const char *key, const int64_t *v, size_t n)
{
	cJSON *list = cJSON_CreateArray();
	bool done = json_add(o, key, list);

	for (size_t i = 0; i < n && done; i++)
		done = json_add_real(list, NULL, (double)v[i]);
	return done;
}

static cJSON *host_json(const struct host *h, const int64_t *size, size_t n_size)
{
	cJSON *o = cJSON_CreateObject();
	bool done = json_add_string(o, "about", h->about) &&
		    add_list(o, "cudagraph_capture_sizes", size, n_size);

	for (int i = 0; i < HOST_N_TIMES && done; i++)
		done = json_add_real(o, host_keys[i], (double)h->ns[i]);
	for (int k = 0; k < HOST_KINDS && done; k++)
		if (h->spread[k][0])
			done = add_list(o, host_spread_keys[k], h->spread[k], HOST_SPREAD);
	if (done && probe_ratio(&h->probe, &h->probe) > 0)
		done = json_add(o, "probe", probe_json(&h->probe));
	if (done)
		return o;
	cJSON_Delete(o);
	return NULL;
}

enum ar_status host_write(const struct host *h, const int64_t *size, size_t n_size,
			  const char *path, struct ar_err *err)
{
	struct outfile out = { 0 };
	enum ar_status st = outfile_open(&out, path, err);

	if (st)
		return st;
	st = json_put_lines(host_json(h, size, n_size), out.f, err);
	if (!st)
		st = outfile_commit(&out, err);
	outfile_release(&out);
	return st;
}
