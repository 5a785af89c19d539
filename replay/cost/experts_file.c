/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/experts_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/number.h"
#include "base/text.h"

enum { FILE_MAX = 1 << 30, HEAD = 3 /* words */ };

struct reader {
	struct experts_file *f;
	const struct experts_shape *shape;
	const char *path;
	int line;
	bool headed, tokens; /* the head was read; it is that of tokens */
	size_t last;	     /* the layer of the last line */
};

static const char *const heads[2][HEAD] = { { "layer", "expert", "weight" },
					    { "token", "layer", "experts" } };

static enum ar_status bad(const struct reader *r, const char *want, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s:%d: want %s", r->path, r->line, want);
}

static bool read_head(struct reader *r, char *line)
{
	char *rest = NULL, *w = strtok_r(line, " \t\r", &rest);
	int n = 0;

	r->tokens = w && !strcmp(w, heads[1][0]);
	for (; w; w = strtok_r(NULL, " \t\r", &rest))
		if (n == HEAD || strcmp(w, heads[r->tokens][n++]) != 0)
			return false;
	return n == HEAD;
}

/* The next word of a line as a number from 0 to most. */
static bool next_int(char **rest, int64_t most, int64_t *x)
{
	const char *w = strtok_r(NULL, " \t\r", rest);
	uint64_t u;

	if (!w || !num_u64(w, strlen(w), &u) || u > (uint64_t)most)
		return false;
	*x = (int64_t)u;
	return true;
}

/* The entry of a layer, which is made if it is not there; NULL: no memory. */
static struct experts_layer *find_layer(struct reader *r, int64_t layer)
{
	struct experts_file *f = r->f;
	size_t i = r->last;

	if (i < f->n && f->layer[i].layer == layer)
		return &f->layer[i];
	for (i = 0; i < f->n && f->layer[i].layer != layer;)
		i++;
	r->last = i;
	if (i < f->n)
		return &f->layer[i];
	if (!GROW(f->layer, f->cap, f->n + 1))
		return NULL;
	f->layer[f->n] = (struct experts_layer){ .layer = layer };
	return &f->layer[f->n++];
}

static enum ar_status add_weight(struct reader *r, int64_t layer, char *rest, struct ar_err *err)
{
	const int n = r->shape->experts;
	struct experts_layer *x = find_layer(r, layer);
	const char *w;
	int64_t expert;
	double weight;

	if (x && !x->weight)
		x->weight = calloc((size_t)n, sizeof *x->weight);
	if (!x || !x->weight)
		return ar_nomem(err);
	if (!next_int(&rest, n - 1, &expert))
		return bad(r, "an expert that the model has", err);
	w = strtok_r(NULL, " \t\r", &rest);
	if (!w || !num_real(w, &weight) || !(weight > 0 && weight < 1e9) || x->weight[expert] > 0 ||
	    strtok_r(NULL, " \t\r", &rest))
		return bad(r, "one weight of each expert, above 0 and below 1e9", err);
	x->total += x->weight[expert] = weight;
	return AR_OK;
}

static enum ar_status add_token(struct reader *r, int64_t layer, char *rest, struct ar_err *err)
{
	const size_t k = (size_t)r->shape->per_tok;
	struct experts_layer *x = find_layer(r, layer);
	uint16_t *set;
	int64_t expert;

	if (!x || !GROW(x->token, x->cap, (x->n_token + 1) * k))
		return ar_nomem(err);
	set = x->token + x->n_token++ * k;
	for (size_t i = 0; i < k; i++) {
		bool fits = next_int(&rest, r->shape->experts - 1, &expert);

		for (size_t j = 0; j < i && fits; j++)
			fits = set[j] != expert;
		if (!fits)
			return bad(r, "as many experts of the model as a token has, all different",
				   err);
		set[i] = (uint16_t)expert;
	}
	return strtok_r(NULL, " \t\r", &rest) ?
		       bad(r, "no more experts than a token of the model has", err) :
		       AR_OK;
}

static enum ar_status read_line(struct reader *r, char *line, struct ar_err *err)
{
	char *rest = NULL;
	int64_t layer;

	line += strspn(line, " \t\r");
	if (!*line || *line == '#')
		return AR_OK;
	if (!r->headed) {
		r->headed = read_head(r, line);
		return r->headed ? AR_OK :
				   bad(r, "'layer expert weight' or 'token layer experts'", err);
	}
	if (r->tokens)
		strtok_r(line, " \t\r", &rest); /* its name */
	else
		rest = line;
	if (!next_int(&rest, r->shape->layers - 1, &layer))
		return bad(r, "a layer that the model has", err);
	return r->tokens ? add_token(r, layer, rest, err) : add_weight(r, layer, rest, err);
}

/* Layers with weights need as many as a row has experts. */
static enum ar_status check(const struct reader *r, struct ar_err *err)
{
	const struct experts_file *f = r->f;

	if (!f->n)
		return ar_fail(err, AR_DATA, "%s: no layer has a line", r->path);
	for (size_t i = 0; i < f->n; i++) {
		int n = 0;

		for (int e = 0; e < r->shape->experts && f->layer[i].weight; e++)
			n += f->layer[i].weight[e] > 0;
		if (f->layer[i].weight && n < r->shape->per_tok)
			return ar_fail(err, AR_DATA,
				       "%s: layer %" PRId64 " has weights of %d experts, but a "
				       "row goes to %d; give more",
				       r->path, f->layer[i].layer, n, r->shape->per_tok);
	}
	return AR_OK;
}

enum ar_status experts_file_load(struct experts_file *f, const char *path,
				 const struct experts_shape *shape, struct ar_err *err)
{
	struct reader r = { .f = f, .shape = shape, .path = path };
	char *text = NULL, *rest;
	enum ar_status st;

	*f = (struct experts_file){ 0 };
	st = text_read(&text, path, FILE_MAX, err);
	rest = text;
	for (char *line = st ? NULL : strsep(&rest, "\n"); line && !st;
	     line = strsep(&rest, "\n")) {
		r.line++;
		st = read_line(&r, line, err);
	}
	free(text);
	return st ? st : check(&r, err);
}

void experts_file_release(struct experts_file *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->layer[i].weight);
		free(f->layer[i].token);
	}
	free(f->layer);
	*f = (struct experts_file){ 0 };
}

size_t experts_file_layer(const struct experts_file *f, int layer)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->layer[i].layer == layer)
			return i;
	return (size_t)layer % f->n;
}
