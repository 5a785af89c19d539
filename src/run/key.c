/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/key.h"

#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/order.h"
#include "replay/engine/run_scope.h"

/* ---- lines ---- */

struct lines {
	char **v;
	size_t n, cap;
};

static void lines_release(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

/* Add "name=value"; number: its place in a list, from 0, or -1. */
static enum ar_status key_put(struct lines *l, const char *name, int number, const char *value,
			      struct ar_err *err)
{
	char place[16] = "";

	if (!GROW(l->v, l->cap, l->n + 1))
		return ar_nomem(err);
	if (number >= 0)
		snprintf(place, sizeof place, ".%04d", number);
	if (asprintf(&l->v[l->n], "%s%s=%s\n", name, place, value) < 0)
		return ar_nomem(err);
	l->n++;
	return AR_OK;
}

/* All in order, one after the other; NULL: no memory. */
static char *join_lines(struct lines *l)
{
	size_t n = 1;
	char *text, *to;

	qsort(l->v, l->n, sizeof *l->v, order_text);
	for (size_t i = 0; i < l->n; i++)
		n += strlen(l->v[i]);
	text = to = calloc(n, 1);
	for (size_t i = 0; i < l->n && text; i++)
		to = stpcpy(to, l->v[i]);
	return text;
}

/* ---- options ---- */

/* Whether the option is part of keys, by the value that an engine's default may have set.  With
 * --costs the key of the run with the costs has the options that measured costs depend on. */
static bool shapes(const struct opt *o, const struct run_key *k)
{
	static const char *const others[] = { "backend", "method",	    "trace",
					      "merge",	 "engine-defaults", "engine-args" };

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (!strcmp(o->name, others[i]))
			return false;
	return !o->record_only && !(o->scope & RUN_COSTED && run_options_costs(k->o));
}

static enum ar_status put_text(struct lines *l, struct key_inputs *in, const char *name, int number,
			       const char *value, struct ar_err *err)
{
	const char *text;
	enum ar_status st = key_input_text(in, name, value, &text, err);

	return st ? st : key_put(l, name, number, text, err);
}

static enum ar_status put_list(struct lines *l, struct key_inputs *in, const char *name,
			       const struct opt_list *list, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < list->n && !st; i++)
		st = put_text(l, in, name, (int)i, list->v[i], err);
	return st;
}

static enum ar_status put_option(struct lines *l, struct key_inputs *in, const struct opt *o,
				 const void *base, struct ar_err *err)
{
	const void *p = (const char *)base + o->off;
	char number[32];

	switch (o->type) {
	case OPT_FLAG: return key_put(l, o->name, -1, *(const bool *)p ? "1" : "0", err);
	case OPT_ENUM: return key_put(l, o->name, -1, o->choice[*(const int *)p], err);
	case OPT_LIST: return put_list(l, in, o->name, p, err);
	case OPT_STR:
		if (!*(char *const *)p)
			return AR_OK;
		return put_text(l, in, o->name, -1, *(char *const *)p, err);
	case OPT_INT:
	case OPT_TIME:
		snprintf(number, sizeof number, "%lld", (long long)*(const int64_t *)p);
		return key_put(l, o->name, -1, number, err);
	case OPT_REAL:
		snprintf(number, sizeof number, "%.17g", *(const double *)p);
		return key_put(l, o->name, -1, number, err);
	case OPT_JOB: break;
	}
	return AR_OK;
}

/* Of other backends only options with a scope have an effect. */
static enum ar_status put_group(struct lines *l, struct key_inputs *in, const struct run_key *k,
				const struct opt_group *g, bool others, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct opt *o = g->opts; o->name && !st; o++)
		if (shapes(o, k) && (!others || o->scope))
			st = put_option(l, in, o, g->base, err);
	return st;
}

/* Put a file of the trace, "FILE" or "FILE:NAME=VALUE,...": its options, and its content into sum,
 * as trace_merge() does. */
static enum ar_status put_file(struct lines *l, struct key_inputs *in, const struct run_key *k,
			       int number, const char *spec, char sum[65], struct ar_err *err)
{
	const size_t n = trace_path_length(spec);
	const char *name = number < 0 ? "trace" : "merge", *text = "";
	char *path = strndup(spec, n);
	enum ar_status st = path ? key_put(l, name, number, spec + n, err) : ar_nomem(err);

	if (!st && !k->trace_sha256)
		st = key_input_text(in, name, path, &text, err);
	if (!st && number < 0)
		snprintf(sum, 65, "%s", text);
	else if (!st)
		trace_merge_sum(sum, text);
	free(path);
	return st;
}

static enum ar_status put_trace(struct lines *l, struct key_inputs *in, const struct run_key *k,
				struct ar_err *err)
{
	const struct opt_list *merge = &k->o->trace_args.merge;
	char sum[65];
	enum ar_status st = put_file(l, in, k, -1, k->o->trace, sum, err);

	for (size_t i = 0; i < merge->n && !st; i++)
		st = put_file(l, in, k, (int)i, merge->v[i], sum, err);
	return st ? st :
		    key_put(l, "trace-sha256", -1, k->trace_sha256 ? k->trace_sha256 : sum, err);
}

static enum ar_status put_options(struct lines *l, struct key_inputs *in, const struct run_key *k,
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

static bool has_gpu(const struct run_key *k)
{
	const struct backend *b = backend_find(k->backend);

	return k->device || (b && b->uses_gpu);
}

static enum ar_status put_program(struct lines *l, const struct run_key *k, struct ar_err *err)
{
	const bool gpu = has_gpu(k);
	char version[64];
	enum ar_status st;

	snprintf(version, sizeof version, "%.*s", gpu ? 63 : (int)strcspn(k->version, "-"),
		 k->version);
	st = key_put(l, "version", -1, version, err);
	if (!st)
		st = key_put(l, "backend", -1, k->backend, err);
	if (!st && k->device)
		st = key_put(l, "device", -1, k->device, err);
	return st;
}

/* No two builds with uncommitted changes are taken to be the same program. */
static enum ar_status put_tree(struct lines *l, const struct run_key *k, struct ar_err *err)
{
	char *text;
	enum ar_status st;

	if (!has_gpu(k) || !ends_with(k->version, "-dirty"))
		return AR_OK;
	st = key_random_text(&text, err);
	if (!st) {
		st = key_put(l, "tree", -1, text, err);
		free(text);
	}
	return st;
}

static enum ar_status put_method(struct lines *l, struct key_inputs *in, const struct run_key *k,
				 struct ar_err *err)
{
	const char *method;
	enum ar_status st;

	if (!k->method)
		return AR_OK;
	st = key_input_text(in, "method", k->method, &method, err);
	if (!st)
		st = key_put(l, "method", -1, method, err);
	/* A threshold that is stated is not tuned, also if it is the default. */
	if (!st && k->o->match)
		st = key_put(l, "match-method", -1, k->method, err);
	return st;
}

static enum ar_status put_all(struct lines *l, struct key_inputs *in, const struct run_key *k,
			      struct ar_err *err)
{
	char repeat[24];
	enum ar_status st = put_options(l, in, k, err);

	if (!st)
		st = put_program(l, k, err);
	snprintf(repeat, sizeof repeat, "%zu", k->repeat);
	if (!st)
		st = key_put(l, "repeat", -1, repeat, err);
	return st ? st : put_method(l, in, k, err);
}

/* tree: with the line of put_tree(). */
static enum ar_status make_lines(char **text, struct key_inputs *in, const struct run_key *k,
				 bool tree, struct ar_err *err)
{
	struct lines l = { 0 };
	enum ar_status st = put_all(&l, in, k, err);

	if (!st && tree)
		st = put_tree(&l, k, err);
	*text = st ? NULL : join_lines(&l);
	lines_release(&l);
	return st || *text ? st : ar_nomem(err);
}

enum ar_status run_key(char key[RUN_KEY_SIZE], const struct run_key *k, struct key_inputs *in,
		       struct ar_err *err)
{
	char hex[SHA256_DIGEST_STRING_LENGTH], *text;
	enum ar_status st = make_lines(&text, in, k, true, err);

	if (st)
		return st;
	SHA256Data((const uint8_t *)text, strlen(text), hex);
	snprintf(key, RUN_KEY_SIZE, "%.*s", RUN_KEY_SIZE - 1, hex);
	free(text);
	return AR_OK;
}

enum ar_status run_key_lines(char **text, const struct run_key *k, struct key_inputs *in,
			     struct ar_err *err)
{
	return make_lines(text, in, k, false, err);
}
