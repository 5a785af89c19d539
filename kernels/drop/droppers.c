/* SPDX-License-Identifier: Apache-2.0 */
/* The list of droppers, and the code that all droppers share. */
#include "config.h"
#include "kernels/drop/dropper.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define DROPPERS(X) \
	X(uniprefill) \
	X(sliminfer) \
	X(lazyllm)

#define X(name) extern const struct dropper dropper_##name;
DROPPERS(X)
#undef X

#define X(name) &dropper_##name,
const struct dropper *const droppers[] = { DROPPERS(X) NULL };
#undef X

const struct dropper *dropper_find(const char *name)
{
	for (int i = 0; droppers[i]; i++)
		if (!strcmp(droppers[i]->name, name))
			return droppers[i];
	return NULL;
}

/* ---- spellings ---- */

static enum ar_status parse_drop(struct drop *d, const char *text, struct ar_err *err)
{
	size_t n = strcspn(text, ":");
	char *name = strndup(text, n);
	struct opt_group g[2] = { 0 };
	enum ar_status st;

	d->name = strdup(text);
	if (!d->name || !name) {
		free(name);
		return ar_nomem(err);
	}
	d->dropper = dropper_find(name);
	free(name);
	if (!d->dropper)
		return ar_fail(err, AR_USAGE,
			       "unknown name: want one that 'attnreplay methods' lists");
	d->param = calloc(1, d->dropper->param_size);
	if (!d->param)
		return ar_nomem(err);
	g->opts = d->dropper->params;
	g->base = d->param;
	st = opt_init(g, err);
	if (!st && text[n])
		st = opt_set_all(g, text + n + 1, err);
	if (!st && d->dropper->check)
		st = d->dropper->check(g, err);
	return st;
}

enum ar_status drop_parse(struct drop **out, const char *text, struct ar_err *err)
{
	struct drop *d = calloc(1, sizeof *d);
	enum ar_status st = d ? parse_drop(d, text, err) : ar_nomem(err);

	*out = NULL;
	if (st) {
		ar_err_prefix(err, "dropper '%s'", text);
		drop_free(d);
		return st;
	}
	*out = d;
	return AR_OK;
}

enum ar_status drop_open(struct drop *d, const struct model *m, struct ar_err *err)
{
	enum ar_status st;

	if (d->self)
		d->dropper->close(d->self);
	st = d->dropper->open(&d->self, d->param, m, err);
	if (st)
		ar_err_prefix(err, "dropper '%s'", d->name);
	return st;
}

void drop_free(struct drop *d)
{
	if (!d)
		return;
	if (d->self)
		d->dropper->close(d->self);
	if (d->param) {
		struct opt_group g[2] = { { .opts = d->dropper->params, .base = d->param }, { 0 } };

		opt_release(g);
		free(d->param);
	}
	free(d->name);
	free(d);
}

cJSON *drop_json(const struct drop *d)
{
	struct opt_group g[2] = { { .opts = d->dropper->params, .base = d->param }, { 0 } };
	cJSON *o = cJSON_CreateObject();

	if (o && cJSON_AddStringToObject(o, "name", d->dropper->name) && opt_json(g, o))
		return o;
	cJSON_Delete(o);
	return NULL;
}

/* ---- calls ---- */

bool drop_acts_after(const struct drop *d, int layer)
{
	return d && d->dropper->acts_after(d->self, layer);
}

bool drop_brings_back(const struct drop *d)
{
	return d && d->dropper->brings_back && d->dropper->brings_back(d->self);
}

bool drop_counts_positions(const struct drop *d)
{
	return d && d->dropper->counts_positions && d->dropper->counts_positions(d->self);
}

int drop_revives(const struct drop *d)
{
	return d && d->dropper->revives ? d->dropper->revives(d->self) : 0;
}

int64_t drop_scores(const struct drop *d, const struct attn_batch *b, int n_step)
{
	return d->dropper->scores(d->self, b, n_step);
}

void drop_index(const struct attn_rows *rows, const struct drop_kept *out)
{
	int n = 0;

	for (int r = 0; r < rows->n_req; r++) {
		int before = n;

		for (int i = rows->row0[r]; i < rows->row0[r + 1]; i++)
			if (out->keep[i])
				out->index[n++] = i;
		out->n_keep[r] = n - before;
	}
}

enum ar_status drop_ref(const struct drop *d, const struct drop_call *call,
			const struct drop_kept *out, struct ar_err *err)
{
	enum ar_status st = d->dropper->ref(call, d->self, out->keep, err);

	if (!st)
		drop_index(&call->at->b->rows, out);
	return st;
}

enum ar_status drop_revive_ref(const struct drop *d, const struct drop_call *call,
			       const struct drop_revived *out, struct ar_err *err)
{
	return d->dropper->revive_ref(call, d->self, out, err);
}

#if HAVE_CUDA
size_t drop_work_bytes(const struct drop *d, int ranks, const struct attn_shape *s,
		       const struct attn_limits *l)
{
	size_t own = d->dropper->work_bytes(d->self, ranks, s, l),
	       index = drop_index_work_bytes(l->max_row);

	return own > index ? own : index;
}

enum ar_status drop_enqueue(const struct drop *d, const struct drop_call *call,
			    const struct drop_kept *out, struct ar_err *err)
{
	enum ar_status st = d->dropper->enqueue(call, d->self, out->keep, err);

	return st ? st :
		    drop_index_enqueue(&call->at->b->rows, out, call->at->work, call->at->stream,
				       err);
}

enum ar_status drop_revive_enqueue(const struct drop *d, const struct drop_call *call,
				   const struct drop_revived *out, struct ar_err *err)
{
	return d->dropper->revive_enqueue(call, d->self, out, err);
}
#endif
