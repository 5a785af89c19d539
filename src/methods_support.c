/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/methods_support.h"

#include <stdio.h>
#include <string.h>

#include "base/gpu.h"
#include "base/json.h"
#include "kernels/methods/method.h"
#include "kernels/support.h"
#include "src/json_file.h"

/* The requirements on all families, and the place of the answers. */
struct asked {
	struct attn_shape shape;
	int cc;	     /* 0: any GPU */
	cJSON *list; /* of the JSON document */
	bool quiet;  /* no text */
};

static enum ar_status read_cc(const char *text, int *cc, struct ar_err *err)
{
	const struct gpu *gpu;
	struct ar_err none;
	int major, minor, end = 0;

	if (!text) {
		*cc = gpu_current(&gpu, &none) ? 0 : gpu->cc;
		return AR_OK;
	}
	if (sscanf(text, "%2d.%1d%n", &major, &minor, &end) < 2 || text[end] || major < 1 ||
	    minor < 0)
		return ar_fail(err, AR_USAGE, "--cc '%s': want a compute capability such as 9.0",
			       text);
	*cc = 10 * major + minor;
	return AR_OK;
}

static void cc_text(int cc, char *buf, size_t n)
{
	if (cc)
		snprintf(buf, n, "%d.%d", cc / 10, cc % 10);
	else
		snprintf(buf, n, "any");
}

/* Cut "KERNEL: WHAT; supported ..." down to WHAT. */
static void shorten(char *message, const char *kernel)
{
	size_t skip = strlen(kernel) + 2;

	memmove(message, message + skip, strlen(message + skip) + 1);
	message[strcspn(message, ";")] = '\0';
}

/* Add one family: the values that it supports on the GPU, and the requirement that it lacks. */
static bool put(const struct asked *a, const struct support *rows, const char *kernel)
{
	const struct support_sum x = support_sum(rows, kernel, a->cc);
	char from[24], heads[32], pages[32], layouts[32];
	struct ar_err lacks = { 0 };
	cJSON *o = cJSON_CreateObject();

	if (support_check_in(rows, kernel, &a->shape, NULL, a->cc, &lacks))
		shorten(lacks.msg, kernel);
	cc_text(x.cc_min, from, sizeof from);
	snprintf(heads, sizeof heads, "-");
	snprintf(pages, sizeof pages, "-");
	snprintf(layouts, sizeof layouts, "-");
	if (x.found) {
		support_sizes(x.head_dims, heads, sizeof heads);
		support_sizes(x.page_toks, pages, sizeof pages);
		support_layouts(x.layouts, layouts, sizeof layouts);
	}
	if (!a->quiet)
		printf("  %-13s %-10s %-13s %-11s %-8s %s\n", kernel, from, heads, pages, layouts,
		       *lacks.msg ? lacks.msg : "-");
	return json_add(a->list, NULL, o) && cJSON_AddStringToObject(o, "kernels", kernel) &&
	       cJSON_AddStringToObject(o, "capability", from) &&
	       cJSON_AddStringToObject(o, "head_sizes", heads) &&
	       cJSON_AddStringToObject(o, "block_sizes", pages) &&
	       cJSON_AddStringToObject(o, "cache", layouts) &&
	       json_add(o, "missing",
			*lacks.msg ? cJSON_CreateString(lacks.msg) : cJSON_CreateNull());
}

static bool put_all(const struct asked *a)
{
	bool done = true;

	for (const struct support *s = supports; s->kernel && done; s++) {
		const struct support *first = supports;

		while (strcmp(first->kernel, s->kernel) != 0)
			first++;
		if (first == s)
			done = put(a, supports, s->kernel);
	}
	return done;
}

static bool put_method(const struct asked *a, const struct method *m)
{
	const struct method_part *p = method_prefill(m);
	struct support own[2];

	return (p->dense || put(a, method_rows(p, own), p->selector->name)) &&
	       put(a, supports, p->executor->kernel) &&
	       put(a, supports, m->part[ROW_DECODE].executor->kernel);
}

/* Make the document, without its list. */
static cJSON *document(struct asked *a)
{
	cJSON *o = cJSON_CreateObject(), *q;
	char on[24];

	cc_text(a->cc, on, sizeof on);
	q = cJSON_AddStringToObject(o, "schema", "attnreplay-support-1") ?
		    cJSON_AddObjectToObject(o, "required") :
		    NULL;
	a->list = cJSON_AddArrayToObject(o, "support");
	if (q && a->list && cJSON_AddNumberToObject(q, "head_size", a->shape.head_dim) &&
	    cJSON_AddNumberToObject(q, "block_size", a->shape.page_tok) &&
	    cJSON_AddStringToObject(q, "cache", cache_layouts->name) &&
	    cJSON_AddStringToObject(q, "capability", on))
		return o;
	cJSON_Delete(o);
	return NULL;
}

static void print_heads(const struct asked *a)
{
	char on[24];

	cc_text(a->cc, on, sizeof on);
	if (!a->quiet)
		printf("required: head size %d, blocks of %d tokens, cache %s, compute capability "
		       "%s\n  %-13s %-10s %-13s %-11s %-8s %s\n",
		       a->shape.head_dim, a->shape.page_tok, cache_layouts->name, on, "kernels",
		       "from", "head sizes", "block sizes", "cache", "missing");
}

enum ar_status methods_support(const struct methods_ask *ask, const char *json, struct ar_err *err)
{
	struct asked a = { .quiet = json_file_alone(json) };
	struct method *m = NULL;
	cJSON *o;
	enum ar_status st = read_cc(ask->cc, &a.cc, err);

	if (!st && ask->method)
		st = method_parse(&m, ask->method, err);
	if (st)
		return st;
	a.shape = (struct attn_shape){ 1, 1, ask->head_dim ? (int)ask->head_dim : 128,
				       ask->page_tok ? (int)ask->page_tok :
				       m	     ? method_page_tok(m) :
						       128 };
	o = document(&a);
	print_heads(&a);
	if (!o || !(m ? put_method(&a, m) : put_all(&a))) {
		cJSON_Delete(o);
		st = ar_nomem(err);
	} else if (json) {
		st = json_file_write(json, o, err);
	} else {
		cJSON_Delete(o);
	}
	method_free(m);
	return st;
}
