/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/key.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data.h"
#include "base/number.h"
#include "kernels/methods/method.h"
#include "replay/engine/run_scope.h"

/* ---- lines ---- */

struct lines {
	char **v;
	size_t n;
};

static void lines_release(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

/* Add "name=value"; number: its place in a list, from 0, or -1. */
static enum ar_status put(struct lines *l, const char *name, int number, const char *value,
			  struct ar_err *err)
{
	char place[16] = "", **v = realloc(l->v, (l->n + 1) * sizeof *v);

	if (!v)
		return ar_nomem(err);
	l->v = v;
	if (number >= 0)
		snprintf(place, sizeof place, ".%04d", number);
	if (asprintf(&v[l->n], "%s%s=%s\n", name, place, value) < 0)
		return ar_nomem(err);
	l->n++;
	return AR_OK;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sum_lines(struct lines *l, char key[RUN_KEY_SIZE])
{
	char hex[SHA256_DIGEST_STRING_LENGTH];
	SHA2_CTX sha;

	qsort(l->v, l->n, sizeof *l->v, by_text);
	SHA256Init(&sha);
	for (size_t i = 0; i < l->n; i++)
		SHA256Update(&sha, (const uint8_t *)l->v[i], strlen(l->v[i]));
	SHA256End(&sha, hex);
	snprintf(key, RUN_KEY_SIZE, "%.*s", RUN_KEY_SIZE - 1, hex);
}

/* ---- inputs by content ---- */

static enum ar_status copy(char **text, const char *s, struct ar_err *err)
{
	*text = strdup(s);
	return *text ? AR_OK : ar_nomem(err);
}

static enum ar_status sum_text(char **text, const char *s, struct ar_err *err)
{
	char hex[SHA256_DIGEST_STRING_LENGTH];

	SHA256Data((const uint8_t *)s, strlen(s), hex);
	return copy(text, hex, err);
}

/* A text that never repeats. */
static enum ar_status random_text(char **text, struct ar_err *err)
{
	char number[32];
	uint64_t x;

	if (getrandom(&x, sizeof x, 0) != sizeof x)
		return ar_fail(err, AR_IO, "cannot get a random number: %s", strerror(errno));
	snprintf(number, sizeof number, "random %016llx", (unsigned long long)x);
	return copy(text, number, err);
}

static enum ar_status sum_fd(char **text, int fd, const char *path, struct ar_err *err)
{
	char hex[SHA256_DIGEST_STRING_LENGTH];
	unsigned char *buf = malloc(1 << 16);
	ssize_t n;
	SHA2_CTX sha;

	if (!buf)
		return ar_nomem(err);
	SHA256Init(&sha);
	while ((n = read(fd, buf, 1 << 16)) > 0)
		SHA256Update(&sha, buf, (size_t)n);
	free(buf);
	SHA256End(&sha, hex);
	if (n < 0)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	return copy(text, hex, err);
}

/* A pipe has been read already, and what was in it is not known here. */
static enum ar_status sum_file(char **text, const char *path, struct ar_err *err)
{
	int fd = data_open(path, O_NONBLOCK);
	enum ar_status st;
	struct stat s;

	if (fd < 0)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	st = !fstat(fd, &s) && S_ISFIFO(s.st_mode) ? random_text(text, err) :
						     sum_fd(text, fd, path, err);
	close(fd);
	return st;
}

static enum ar_status sum_model(char **text, const char *value, struct ar_err *err)
{
	struct model m;
	enum ar_status st = model_load(&m, value, err);

	if (st)
		return st;
	st = sum_text(text, m.json, err);
	model_release(&m);
	return st;
}

static enum ar_status sum_host(char **text, const char *value, struct ar_err *err)
{
	char path[PATH_MAX];

	if (strcmp(value, "auto") != 0 && host_find(value, path, sizeof path))
		return sum_file(text, path, err);
	return copy(text, value, err); /* auto and none; a bad name fails when it is loaded */
}

static enum ar_status sum_factors(char **text, const char *value, struct ar_err *err)
{
	return access(value, F_OK) ? copy(text, value, err) : sum_file(text, value, err);
}

static enum ar_status key_of_costs(char **text, const char *value, struct ar_err *err)
{
	struct costs *c;
	enum ar_status st = costs_open(&c, value, err);

	if (st)
		return st;
	st = copy(text, c->run.run_key, err);
	costs_close(c);
	return st;
}

static enum ar_status count_text(char **text, const char *value, struct ar_err *err)
{
	char number[32];
	int64_t n;

	if (num_count(value, &n)) /* else auto */
		snprintf(number, sizeof number, "%lld", (long long)n);
	else
		snprintf(number, sizeof number, "%s", value);
	return copy(text, number, err);
}

/* Put sums in place of the files that parameters of the method name. */
static enum ar_status sum_parameters(const struct method *m, cJSON *params, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct opt *o = m->selector->params; o->name && !st; o++) {
		cJSON *v = cJSON_GetObjectItemCaseSensitive(params, o->name);
		char *sum = NULL;

		if (!cJSON_IsString(v) || !o->arg || strcmp(o->arg, "FILE") != 0)
			continue;
		st = sum_file(&sum, v->valuestring, err);
		if (!st && !cJSON_SetValuestring(v, sum))
			st = ar_nomem(err);
		free(sum);
	}
	return st;
}

static enum ar_status method_text(char **text, const char *value, struct ar_err *err)
{
	cJSON *params = NULL;
	struct method *m;
	char *json = NULL;
	enum ar_status st = method_parse(&m, value, err);

	if (st)
		return st;
	params = cJSON_Parse(m->params);
	st = params ? sum_parameters(m, params, err) : ar_nomem(err);
	if (!st) {
		json = cJSON_PrintUnformatted(params);
		st = json ? copy(text, json, err) : ar_nomem(err);
	}
	cJSON_free(json);
	cJSON_Delete(params);
	method_free(m);
	return st;
}

/* Options whose value stands for something else. */
static const struct stand_in {
	const char *name;
	enum ar_status (*text)(char **text, const char *value, struct ar_err *err);
} stand_ins[] = {
	{ "capture", sum_file },
	{ "components", sum_file },
	{ "costs", key_of_costs },
	{ "dense-as-engine", sum_factors },
	{ "host", sum_host },
	{ "merge", sum_file },
	{ "method", method_text },
	{ "model", sum_model },
	{ "num-gpu-blocks", count_text },
	{ "trace", sum_file },
};

static const struct stand_in *find_stand_in(const char *name)
{
	for (size_t i = 0; i < sizeof stand_ins / sizeof *stand_ins; i++)
		if (!strcmp(stand_ins[i].name, name))
			return &stand_ins[i];
	return NULL;
}

void run_inputs_release(struct run_inputs *in)
{
	for (size_t i = 0; i < in->n; i++) {
		free(in->v[i].name);
		free(in->v[i].value);
		free(in->v[i].text);
	}
	free(in->v);
	*in = (struct run_inputs){ 0 };
}

static enum ar_status read_input(struct run_inputs *in, const struct stand_in *s, const char *value,
				 struct ar_err *err)
{
	struct run_input *v = realloc(in->v, (in->n + 1) * sizeof *v);
	struct run_input x = { .name = strdup(s->name), .value = strdup(value) };
	enum ar_status st = AR_OK;

	if (v)
		in->v = v;
	if (!v || !x.name || !x.value)
		st = ar_nomem(err);
	if (!st)
		st = s->text(&x.text, value, err);
	if (!st) {
		v[in->n++] = x;
		return AR_OK;
	}
	free(x.name);
	free(x.value);
	return st;
}

/* *text: what the value of the option stands for, owned by in. */
static enum ar_status resolve(struct run_inputs *in, const char *name, const char *value,
			      const char **text, struct ar_err *err)
{
	const struct stand_in *s = find_stand_in(name);
	enum ar_status st;

	*text = value;
	if (!s)
		return AR_OK;
	for (size_t i = 0; i < in->n; i++)
		if (!strcmp(in->v[i].name, name) && !strcmp(in->v[i].value, value)) {
			*text = in->v[i].text;
			return AR_OK;
		}
	st = read_input(in, s, value, err);
	if (!st)
		*text = in->v[in->n - 1].text;
	return st;
}

/* ---- options ---- */

/* Whether the option is part of keys.  With --costs the key of the run with the costs has the
 * options that measured costs depend on. */
static bool shapes(const struct opt *o, const struct run_key *k)
{
	return !o->record_only && strcmp(o->name, "backend") != 0 &&
	       strcmp(o->name, "method") != 0 && strcmp(o->name, "trace") != 0 &&
	       strcmp(o->name, "merge") != 0 && !(o->scope & RUN_COSTED && run_options_costs(k->o));
}

static enum ar_status put_value(struct lines *l, struct run_inputs *in, const char *name,
				int number, const cJSON *v, struct ar_err *err)
{
	char buf[32];
	const char *text = buf;
	enum ar_status st = AR_OK;

	if (cJSON_IsBool(v))
		snprintf(buf, sizeof buf, "%d", cJSON_IsTrue(v));
	else if (cJSON_IsNumber(v))
		snprintf(buf, sizeof buf, "%.17g", v->valuedouble);
	else
		st = resolve(in, name, v->valuestring, &text, err);
	return st ? st : put(l, name, number, text, err);
}

static enum ar_status put_list(struct lines *l, struct run_inputs *in, const char *name,
			       const cJSON *list, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const cJSON *v;
	int n = 0;

	cJSON_ArrayForEach(v, list) {
		if (!st)
			st = put_value(l, in, name, n++, v, err);
	}
	return st;
}

static enum ar_status put_option(struct lines *l, struct run_inputs *in, const char *name,
				 const cJSON *v, struct ar_err *err)
{
	if (!v)
		return AR_OK;
	return cJSON_IsArray(v) ? put_list(l, in, name, v, err) :
				  put_value(l, in, name, -1, v, err);
}

/* Of other backends only options with a scope have an effect. */
static enum ar_status put_group(struct lines *l, struct run_inputs *in, const struct run_key *k,
				const struct opt_group *g, bool others, struct ar_err *err)
{
	const struct opt_group one[] = { *g, { 0 } };
	cJSON *values = cJSON_CreateObject();
	enum ar_status st = values && opt_json(one, values) ? AR_OK : ar_nomem(err);

	for (const struct opt *o = g->opts; o->name && !st; o++)
		if (shapes(o, k) && (!others || o->scope))
			st = put_option(l, in, o->name,
					cJSON_GetObjectItemCaseSensitive(values, o->name), err);
	cJSON_Delete(values);
	return st;
}

/* Put a file of the trace, "FILE" or "FILE:NAME=VALUE,...": its options, and its content into sum,
 * as trace_merge() does. */
static enum ar_status put_file(struct lines *l, struct run_inputs *in, const struct run_key *k,
			       int number, const char *spec, char sum[65], struct ar_err *err)
{
	const size_t n = trace_path_length(spec);
	const char *name = number < 0 ? "trace" : "merge", *text = "";
	char *path = strndup(spec, n);
	enum ar_status st = path ? put(l, name, number, spec + n, err) : ar_nomem(err);

	if (!st && !k->trace_sha256)
		st = resolve(in, name, path, &text, err);
	if (!st && number < 0)
		snprintf(sum, 65, "%s", text);
	else if (!st)
		trace_merge_sum(sum, text);
	free(path);
	return st;
}

static enum ar_status put_trace(struct lines *l, struct run_inputs *in, const struct run_key *k,
				struct ar_err *err)
{
	const struct opt_list *merge = &k->o->trace_args.merge;
	char sum[65];
	enum ar_status st = put_file(l, in, k, -1, k->o->trace, sum, err);

	for (size_t i = 0; i < merge->n && !st; i++)
		st = put_file(l, in, k, (int)i, merge->v[i], sum, err);
	return st ? st : put(l, "trace-sha256", -1, k->trace_sha256 ? k->trace_sha256 : sum, err);
}

static enum ar_status put_options(struct lines *l, struct run_inputs *in, const struct run_key *k,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; k->o->group[i].opts && !st; i++)
		st = put_group(l, in, k, &k->o->group[i],
			       i >= RUN_GROUP_BACKEND &&
				       strcmp(backends[i - RUN_GROUP_BACKEND]->name, k->backend),
			       err);
	return st ? st : put_trace(l, in, k, err);
}

/* ---- the program and its device ---- */

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static enum ar_status put_program(struct lines *l, const struct run_key *k, struct ar_err *err)
{
	const struct backend *b = backend_find(k->backend);
	const bool gpu = k->device || (b && b->uses_gpu);
	char version[64], *text;
	enum ar_status st;

	snprintf(version, sizeof version, "%.*s", gpu ? 63 : (int)strcspn(k->version, "-"),
		 k->version);
	st = put(l, "version", -1, version, err);
	if (!st)
		st = put(l, "backend", -1, k->backend, err);
	if (!st && k->device)
		st = put(l, "device", -1, k->device, err);
	if (st || !gpu || !ends_with(k->version, "-dirty"))
		return st;
	st = random_text(&text, err);
	if (!st) {
		st = put(l, "tree", -1, text, err);
		free(text);
	}
	return st;
}

enum ar_status run_key(char key[RUN_KEY_SIZE], const struct run_key *k, struct run_inputs *in,
		       struct ar_err *err)
{
	struct lines l = { 0 };
	const char *method;
	enum ar_status st = put_options(&l, in, k, err);

	if (!st)
		st = put_program(&l, k, err);
	if (!st && k->method) {
		st = resolve(in, "method", k->method, &method, err);
		if (!st)
			st = put(&l, "method", -1, method, err);
	}
	if (!st)
		sum_lines(&l, key);
	lines_release(&l);
	return st;
}
