/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/trace_writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

struct trace_writing {
	const struct trace *t;
	size_t *last;	 /* [t->n_session] the session's last request plus 1; 0: none */
	uint64_t fresh;	 /* a block id that no request has */
	uint64_t parted; /* turns that do not continue the turn before */
};

/* Write ns in units of 10^digits ns, exactly. */
static void put_time(int64_t ns, int digits, FILE *f)
{
	int64_t unit = 1, rest;

	for (int i = 0; i < digits; i++)
		unit *= 10;
	rest = ns % unit;
	fprintf(f, "%" PRId64, ns / unit);
	if (!rest)
		return;
	while (rest % 10 == 0) {
		rest /= 10;
		digits--;
	}
	fprintf(f, ".%0*" PRId64, digits, rest);
}

static void put_ids(const struct trace *t, const struct request *q, FILE *f)
{
	for (uint32_t k = 0; k < q->n_block; k++)
		fprintf(f, "%s%" PRIu64, k ? ", " : ", \"hash_ids\": [", trace_block(t, q, k));
	fputs(q->n_block ? "]" : "", f);
}

/* ---- mooncake ---- */

static void mooncake_request(struct trace_writing *w, size_t i, FILE *f)
{
	const struct request *q = &w->t->req[i];

	fputs("{\"timestamp\": ", f);
	put_time(q->arrival_ns, 6, f);
	fprintf(f, ", \"input_length\": %u, \"output_length\": %u", q->prompt_tok, q->output_tok);
	put_ids(w->t, q, f);
	fputs("}\n", f);
}

/* ---- aiperf ---- */

/* Whether request q is request p, its output and new tokens, as far as their blocks tell. */
static bool continues(const struct trace *t, const struct request *p, const struct request *q)
{
	const uint32_t full = p->n_block ? p->prompt_tok / t->block_tok : 0;
	bool same = q->prompt_tok > (uint64_t)p->prompt_tok + p->output_tok &&
		    !p->n_block == !q->n_block;

	for (uint32_t k = 0; k < full && same; k++)
		same = trace_block(t, p, k) == trace_block(t, q, k);
	return same;
}

/* A later turn has the tokens that are new in it.  Their blocks do not lie where the trace's do, so
 * they get ids that nobody shares. */
static void aiperf_request(struct trace_writing *w, size_t i, FILE *f)
{
	const struct trace *t = w->t;
	const struct request *q = &t->req[i], *p = NULL;
	uint32_t tok = q->prompt_tok;

	if (q->session >= 0 && w->last[q->session])
		p = &t->req[w->last[q->session] - 1];
	if (p && !continues(t, p, q)) {
		w->parted++;
		p = NULL;
	}
	fputs("{\"session_id\": ", f);
	if (q->session >= 0 && (p || !w->last[q->session]))
		text_put_json(t->session[q->session], f);
	else
		fprintf(f, "\"request %zu\"", i);
	if (q->session >= 0 && (p || !w->last[q->session]))
		w->last[q->session] = i + 1;
	fputs(", \"timestamp\": ", f);
	put_time(q->arrival_ns, 6, f);
	if (p && q->think_ns >= 0) {
		fputs(", \"delay\": ", f);
		put_time(q->think_ns, 6, f);
	}
	if (p)
		tok -= p->prompt_tok + p->output_tok;
	fprintf(f, ", \"input_length\": %u, \"output_length\": %u", tok, q->output_tok);
	if (!p)
		put_ids(t, q, f);
	for (uint32_t k = 0, n = (tok + t->block_tok - 1) / (t->block_tok ? t->block_tok : 1);
	     p && q->n_block && k < n; k++)
		fprintf(f, "%s%" PRIu64 "%s", k ? ", " : ", \"hash_ids\": [", w->fresh++,
			k + 1 == n ? "]" : "");
	fputs("}\n", f);
}

/* ---- CSV ---- */

static void vidur_begin(const struct trace *t, FILE *f)
{
	(void)t;
	fputs("arrived_at,num_prefill_tokens,num_decode_tokens\n", f);
}

static void vidur_request(struct trace_writing *w, size_t i, FILE *f)
{
	const struct request *q = &w->t->req[i];

	put_time(q->arrival_ns, 9, f);
	fprintf(f, ",%u,%u\n", q->prompt_tok, q->output_tok);
}

/* vllm bench reads the third and fourth column, so sessions come last. */
static void burstgpt_begin(const struct trace *t, FILE *f)
{
	fprintf(f, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type%s\n",
		t->n_session ? ",Session ID" : "");
}

/* A cell of CSV must end on its line. */
static void put_cell(const char *text, FILE *f)
{
	putc('"', f);
	for (; *text; text++) {
		if (*text == '"')
			putc('"', f);
		putc(*text == '\n' || *text == '\r' ? ' ' : *text, f);
	}
	putc('"', f);
}

/* vllm bench skips requests of other models than GPT-4, so those without a type have it. */
static void burstgpt_request(struct trace_writing *w, size_t i, FILE *f)
{
	const struct trace *t = w->t;
	const struct request *q = &t->req[i];

	put_time(q->arrival_ns, 9, f);
	putc(',', f);
	put_cell(q->type ? t->type[q->type - 1] : "GPT-4", f);
	fprintf(f, ",%u,%u,%" PRIu64 ",%s", q->prompt_tok, q->output_tok,
		(uint64_t)q->prompt_tok + q->output_tok,
		q->session >= 0 ? "Conversation log" : "API log");
	if (t->n_session)
		putc(',', f);
	if (q->session >= 0)
		put_cell(t->session[q->session], f);
	putc('\n', f);
}

const struct trace_writer trace_writers[] = {
	{ "mooncake", KEEPS_BLOCKS, NULL, mooncake_request },
	{ "aiperf", KEEPS_BLOCKS | KEEPS_SESSIONS | KEEPS_THINK, NULL, aiperf_request },
	{ "vidur", 0, vidur_begin, vidur_request },
	{ "burstgpt", KEEPS_SESSIONS | KEEPS_TYPES, burstgpt_begin, burstgpt_request },
	{ 0 },
};

const struct trace_writer *trace_writer_find(const char *name)
{
	for (const struct trace_writer *w = trace_writers; w->name; w++)
		if (!strcmp(w->name, name))
			return w;
	return NULL;
}

/* ---- the trace ---- */

static void warn_lost(const struct trace_writer *w, const struct trace *t)
{
	static const char *const part[] = { "prefix blocks", "sessions", "types", "think times" };
	uint64_t n[4] = { 0 };

	for (size_t i = 0; i < t->n; i++) {
		n[0] += t->req[i].n_block > 0;
		n[1] += t->req[i].session >= 0;
		n[2] += t->req[i].type > 0;
		n[3] += t->req[i].session >= 0 && t->req[i].think_ns >= 0;
	}
	for (int k = 0; k < 4; k++)
		if (n[k] && !(w->keeps & 1u << k))
			log_warn("%s: format %s has no %s; those of %" PRIu64 " requests are left "
				 "out",
				 t->name, w->name, part[k], n[k]);
	if (t->n_run && w->keeps & KEEPS_BLOCKS && t->block_tok != 512)
		log_warn("%s: its prefix blocks have %u tokens, not 512 as format %s usually has; "
			 "tell the reader, as with --hash-block %u",
			 t->name, t->block_tok, w->name, t->block_tok);
}

enum ar_status trace_write_as(const struct trace_writer *how, const struct trace *t, FILE *f,
			      struct ar_err *err)
{
	struct trace_writing w = { .t = t, .fresh = trace_fresh_id(t) };

	w.last = calloc(t->n_session + 1, sizeof *w.last);
	if (!w.last)
		return ar_nomem(err);
	warn_lost(how, t);
	if (how->begin)
		how->begin(t, f);
	for (size_t i = 0; i < t->n && !ferror(f); i++)
		how->request(&w, i, f);
	if (w.parted)
		log_warn("%s: %" PRIu64 " turns do not continue the turn before and become "
			 "sessions of their own",
			 t->name, w.parted);
	free(w.last);
	if (fflush(f) || ferror(f))
		return ar_fail(err, AR_IO, "cannot write the trace: %s", strerror(errno));
	return AR_OK;
}
