/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/key_inputs.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sha256.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data.h"
#include "base/grow.h"
#include "base/number.h"
#include "kernels/methods/plan.h"
#include "model/model.h"
#include "model/shards.h"
#include "replay/cost/comm_preset.h"
#include "replay/cost/costs.h"
#include "replay/cost/experts.h"
#include "replay/host/host.h"
#include "src/run/options.h"
#include "traces/capture/capture.h"
#include "traces/capture/random.h"

static enum ar_status copy_text(char **text, const char *s, struct ar_err *err)
{
	*text = strdup(s);
	return *text ? AR_OK : ar_nomem(err);
}

static enum ar_status sum_text(char **text, const char *s, struct ar_err *err)
{
	char hex[SHA256_DIGEST_STRING_LENGTH];

	SHA256Data((const uint8_t *)s, strlen(s), hex);
	return copy_text(text, hex, err);
}

enum ar_status key_random_text(char **text, struct ar_err *err)
{
	char number[32];
	uint64_t x;

	if (getrandom(&x, sizeof x, 0) != sizeof x)
		return ar_fail(err, AR_IO, "cannot get a random number: %s", strerror(errno));
	snprintf(number, sizeof number, "random %016llx", (unsigned long long)x);
	return copy_text(text, number, err);
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
	return copy_text(text, hex, err);
}

/* The checksum of a file.  A pipe was read before, so its contents are not known here. */
static enum ar_status sum_file(char **text, const char *path, struct ar_err *err)
{
	int fd = data_open(path, O_NONBLOCK);
	enum ar_status st;
	struct stat s;

	if (fd < 0)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	st = !fstat(fd, &s) && S_ISFIFO(s.st_mode) ? key_random_text(text, err) :
						     sum_fd(text, fd, path, err);
	close(fd);
	return st;
}

/* A capture may have gigabytes, so not all of an .arc is read. */
static enum ar_status sum_capture(char **text, const char *value, struct ar_err *err)
{
	struct capture *c = NULL;
	char hex[65];
	enum ar_status st;

	if (random_named(value))
		return copy_text(text, value, err);
	st = capture_open(&c, value, err);
	if (!st)
		st = capture_sum(c, hex, err);
	if (!st)
		st = *hex ? copy_text(text, hex, err) : sum_file(text, value, err);
	capture_close(c);
	return st;
}

static enum ar_status sum_model(char **text, const char *value, struct ar_err *err)
{
	char *json;
	enum ar_status st = model_read_text(&json, value, err);

	if (st)
		return st;
	st = sum_text(text, json, err);
	free(json);
	return st;
}

enum { HEAD = 1 << 20, PAGE = 1 << 12 }; /* bytes, of sum_shard() */

/* A file may have gigabytes.  So its first megabyte is read, which holds the header, but only a
 * page of each further megabyte.  buf: [HEAD]. */
static enum ar_status sum_shard(SHA2_CTX *sha, unsigned char *buf, const char *path,
				struct ar_err *err)
{
	int fd = data_open(path, 0);
	size_t n = HEAD;
	ssize_t got = -1;

	for (off_t at = 0; fd >= 0 && (got = pread(fd, buf, n, at)) > 0; at += HEAD) {
		SHA256Update(sha, buf, (size_t)got);
		n = PAGE;
	}
	if (got)
		ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return got ? AR_DATA : AR_OK;
}

/* The config, and the files that the weights are read from. */
static enum ar_status sum_weights(char **text, const char *value, struct ar_err *err)
{
	char config[PATH_MAX], hex[SHA256_DIGEST_STRING_LENGTH];
	unsigned char *buf = malloc(HEAD);
	struct shards s = { 0 };
	SHA2_CTX sha;
	enum ar_status st = buf ? shards_open(&s, value, err) : ar_nomem(err);

	SHA256Init(&sha);
	snprintf(config, sizeof config, "%s/config.json", value);
	if (!st)
		st = sum_shard(&sha, buf, config, err);
	for (size_t i = 0; i < s.n_file && !st; i++)
		st = sum_shard(&sha, buf, s.file[i].path, err);
	SHA256End(&sha, hex);
	shards_close(&s);
	free(buf);
	return st ? st : copy_text(text, hex, err);
}

static enum ar_status sum_host(char **text, const char *value, struct ar_err *err)
{
	char path[PATH_MAX];

	if (strcmp(value, "auto") != 0 && host_find(value, path, sizeof path))
		return sum_file(text, path, err);
	return copy_text(text, value, err); /* auto and none; a bad name fails when it is loaded */
}

/* A value that names no file has a meaning of its own. */
static enum ar_status sum_named(char **text, const char *value, struct ar_err *err)
{
	return access(value, F_OK) ? copy_text(text, value, err) : sum_file(text, value, err);
}

static enum ar_status sum_comm(char **text, const char *value, struct ar_err *err)
{
	char path[PATH_MAX];

	if (run_comm_is_word(value))
		return copy_text(text, value, err);
	return sum_file(text, comm_preset_find(value, path, sizeof path) ? path : value, err);
}

static enum ar_status sum_routing(char **text, const char *value, struct ar_err *err)
{
	bool is_file;
	enum ar_status st = experts_check(value, &is_file, err);

	if (st)
		return st;
	return is_file ? sum_file(text, value, err) : copy_text(text, value, err);
}

static enum ar_status key_of_costs(char **text, const char *value, struct ar_err *err)
{
	struct costs *c;
	enum ar_status st = costs_open(&c, value, err);

	if (st)
		return st;
	st = copy_text(text, c->run.run_key, err);
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
	return copy_text(text, number, err);
}

/* Put sums in place of the files that parameters of a part name. */
static enum ar_status sum_part(const struct method_part *p, cJSON *params, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct opt *o = p->selector->params; o->name && !st; o++) {
		cJSON *v = cJSON_GetObjectItemCaseSensitive(params, o->name);
		char *sum = NULL;

		if (!cJSON_IsString(v) || !o->arg || strcmp(o->arg, "FILE") != 0)
			continue;
		st = sum_named(&sum, *(char *const *)((const char *)p->param + o->off), err);
		if (!st && !cJSON_SetValuestring(v, sum))
			st = ar_nomem(err);
		free(sum);
	}
	return st;
}

/* The same for all parts of the method.  The file of its selector has a sum already. */
static enum ar_status sum_parameters(const struct method *m, cJSON *params, struct ar_err *err)
{
	cJSON *decode = cJSON_GetObjectItemCaseSensitive(params, "decode");
	enum ar_status st;

	cJSON_DeleteItemFromObjectCaseSensitive(params, "selector-file");
	st = sum_part(method_prefill(m), params, err);
	return st || !decode ? st : sum_part(&m->part[ROW_DECODE], decode, err);
}

/* The same for each method of a plan.  params: of the plan. */
static enum ar_status sum_plan(const struct plan *p, cJSON *params, struct ar_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(params, "plan");
	enum ar_status st = AR_OK;

	if (plan_single(p))
		return sum_parameters(plan_single(p), params, err);
	for (size_t i = 0; i < p->n_range && !st; i++)
		st = sum_parameters(p->method[p->range[i].method],
				    cJSON_GetObjectItemCaseSensitive(
					    cJSON_GetArrayItem(list, (int)i), "method"),
				    err);
	return st;
}

static enum ar_status method_text(char **text, const char *value, struct ar_err *err)
{
	cJSON *params = NULL;
	struct plan *p;
	char *json = NULL;
	enum ar_status st = plan_parse(&p, value, err);

	if (st)
		return st;
	params = cJSON_Parse(p->params);
	st = params ? sum_plan(p, params, err) : ar_nomem(err);
	if (!st) {
		json = cJSON_PrintUnformatted(params);
		st = json ? copy_text(text, json, err) : ar_nomem(err);
	}
	cJSON_free(json);
	cJSON_Delete(params);
	plan_free(p);
	return st;
}

/* Options with another text in keys than their value. */
static const struct stand_in {
	const char *name;
	enum ar_status (*text)(char **text, const char *value, struct ar_err *err);
} stand_ins[] = {
	{ "capture", sum_capture },
	{ "comm", sum_comm },
	{ "components", sum_file },
	{ "costs", key_of_costs },
	{ "dense-as-engine", sum_named },
	{ "host", sum_host },
	{ "merge", sum_file },
	{ "method", method_text },
	{ "model", sum_model },
	{ "num-gpu-blocks", count_text },
	{ "prompts", sum_file },
	{ "routing", sum_routing },
	{ "trace", sum_file },
	{ "weights", sum_weights },
};

static const struct stand_in *find_stand_in(const char *name)
{
	for (size_t i = 0; i < sizeof stand_ins / sizeof *stand_ins; i++)
		if (!strcmp(stand_ins[i].name, name))
			return &stand_ins[i];
	return NULL;
}

void key_inputs_release(struct key_inputs *in)
{
	for (size_t i = 0; i < in->n; i++) {
		free(in->v[i].name);
		free(in->v[i].value);
		free(in->v[i].text);
	}
	free(in->v);
	*in = (struct key_inputs){ 0 };
}

static enum ar_status read_input(struct key_inputs *in, const struct stand_in *s, const char *value,
				 struct ar_err *err)
{
	struct key_input x = { .name = strdup(s->name), .value = strdup(value) };
	enum ar_status st = AR_OK;

	if (!x.name || !x.value || !GROW(in->v, in->cap, in->n + 1))
		st = ar_nomem(err);
	if (!st)
		st = s->text(&x.text, value, err);
	if (!st) {
		in->v[in->n++] = x;
		return AR_OK;
	}
	free(x.name);
	free(x.value);
	return st;
}

enum ar_status key_input_text(struct key_inputs *in, const char *name, const char *value,
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
