/* Traces made of other traces: blocks and sessions get new names, so that none of two origins are
 * taken for one. */
#include "config.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/algebra/shape.h"
#include "traces/importers/import.h"

/* ---- blocks ---- */

/* Append the blocks of q, a request of from, to t->block, numbered by first appearance of
 * (origin, id).  There is room. */
static bool put_blocks(struct trace *t, struct request *q, const uint64_t *from, uint64_t origin,
		       struct chain *ids)
{
	size_t at = t->n_block;

	for (uint32_t k = 0; k < q->n_block; k++) {
		struct chain_key key = { .prev = origin, .src = from[q->block + k] };

		if (!chain_put(ids, key, ids->n, &t->block[t->n_block++]))
			return false;
	}
	q->block = at;
	return true;
}

static size_t count_blocks(const struct trace *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		n += t->req[i].n_block;
	return n;
}

/* ---- merge ---- */

static enum ar_status check_merge(const struct trace *a, const struct trace *b,
				  enum trace_align align, struct ar_err *err)
{
	if (a->block_tok && b->block_tok && a->block_tok != b->block_tok)
		return ar_fail(err, AR_USAGE,
			       "%s has prefix blocks of %u tokens, %s of %u; they cannot be merged",
			       a->name, a->block_tok, b->name, b->block_tok);
	if (align == ALIGN_CLOCK && !(a->has_epoch && b->has_epoch))
		return ar_fail(err, AR_USAGE, "%s has no dates; merge it with --align start",
			       a->has_epoch ? b->name : a->name);
	if (a->n_session + b->n_session > INT32_MAX || a->n_type + b->n_type > INT32_MAX)
		return ar_nomem(err);
	return AR_OK;
}

/* Put a's names and then b's into *all, which takes them from a: number i of b becomes map[i]. */
static bool join_names(struct names *all, char ***names, size_t n, char *const *more, size_t n_more,
		       bool apart, uint32_t *map)
{
	bool done = true;
	uint32_t number;

	for (size_t i = 0; i < n && done; i++)
		done = names_put(all, (*names)[i], strlen((*names)[i]), &number);
	for (size_t i = 0; i < n_more && done; i++) {
		if (apart) {
			done = names_put_new(all, more[i], 1);
			map[i] = (uint32_t)all->n - 1;
		} else {
			done = names_put(all, more[i], strlen(more[i]), &map[i]);
		}
	}
	return done;
}

/* The names of *all instead of those in *v. */
static void take_names(char ***v, size_t *n, struct names *all)
{
	struct names old = { .v = *v, .n = *n };

	*v = all->v;
	*n = all->n;
	all->v = NULL;
	all->n = 0;
	names_release(&old);
	names_release(all);
}

static bool append(cJSON *list, const cJSON *more)
{
	const cJSON *e;

	cJSON_ArrayForEach(e, more) {
		cJSON *copy = cJSON_Duplicate(e, 1);

		if (!copy || !cJSON_AddItemToArray(list, copy)) {
			cJSON_Delete(copy);
			return false;
		}
	}
	return true;
}

/* Of a trace of several files: "a+b", and a hash of both hashes. */
static enum ar_status join_history(struct trace *a, const struct trace *b, struct ar_err *err)
{
	cJSON *all = trace_sources(a), *more = trace_sources(b);
	size_t size = strlen(a->name) + strlen(b->name) + 2;
	char *name = malloc(size), *format = strdup("merged");
	char both[2 * sizeof a->sha256];
	bool done = all && more && name && format && append(all, more) &&
		    append(a->transforms, b->transforms);

	cJSON_Delete(more);
	if (!done) {
		cJSON_Delete(all);
		free(name);
		free(format);
		return ar_nomem(err);
	}
	cJSON_Delete(a->sources);
	a->sources = all;
	snprintf(both, sizeof both, "%s%s", a->sha256, b->sha256);
	SHA256Data((const uint8_t *)both, strlen(both), a->sha256);
	snprintf(name, size, "%s+%s", a->name, b->name);
	free(a->name);
	a->name = name;
	free(a->format);
	a->format = format;
	return trace_note(a, err, "merge=%s", b->name);
}

/* The requests of both in order, those of a first where they arrive together; b's names become
 * those of the maps. */
static bool join_requests(struct trace *out, const struct trace *a, const struct trace *b,
			  const int64_t offset[2], const uint32_t *session, const uint32_t *type)
{
	struct chain ids = { 0 };
	size_t i = 0, j = 0;
	bool done = true;

	while (done && i + j < a->n + b->n) {
		bool first = j == b->n || (i < a->n && a->req[i].arrival_ns + offset[0] <=
						       b->req[j].arrival_ns + offset[1]);
		struct request q = first ? a->req[i++] : b->req[j++];

		q.arrival_ns += offset[!first];
		if (!first && q.session >= 0)
			q.session = (int32_t)session[q.session];
		if (!first && q.type)
			q.type = type[q.type - 1] + 1;
		done = put_blocks(out, &q, first ? a->block : b->block, !first, &ids);
		out->req[out->n++] = q;
	}
	chain_release(&ids);
	return done;
}

/* How far arrivals of a and of b move to stand on one axis, which begins at *epoch. */
static enum ar_status offsets(const struct trace *a, const struct trace *b, enum trace_align align,
			      int64_t offset[2], int64_t *epoch, struct ar_err *err)
{
	*epoch = 0;
	offset[0] = offset[1] = 0;
	if (align == ALIGN_START)
		return AR_OK;
	*epoch = a->epoch_ns < b->epoch_ns ? a->epoch_ns : b->epoch_ns;
	offset[0] = a->epoch_ns - *epoch;
	offset[1] = b->epoch_ns - *epoch;
	return trace_check_end(&(struct trace){ .epoch_ns = *epoch },
			       fmax((double)a->req[a->n - 1].arrival_ns + (double)offset[0],
				    (double)b->req[b->n - 1].arrival_ns + (double)offset[1]), err);
}

enum ar_status trace_merge(struct trace *a, const struct trace *b, enum trace_align align,
			   struct ar_err *err)
{
	uint32_t *session = calloc(b->n_session + 1, sizeof *session);
	uint32_t *type = calloc(b->n_type + 1, sizeof *type);
	struct names sessions = { 0 }, types = { 0 };
	struct trace both = { 0 };
	int64_t offset[2], epoch;
	enum ar_status st = check_merge(a, b, align, err);

	if (!st)
		st = offsets(a, b, align, offset, &epoch, err);
	if (st)
		goto out;
	both.req = calloc(a->n + b->n, sizeof *both.req);
	both.block = calloc(count_blocks(a) + count_blocks(b) + 1, sizeof *both.block);
	if (!session || !type || !both.req || !both.block ||
	    !join_names(&sessions, &a->session, a->n_session, b->session, b->n_session, true,
			session) ||
	    !join_names(&types, &a->type, a->n_type, b->type, b->n_type, false, type) ||
	    !join_requests(&both, a, b, offset, session, type))
		st = ar_nomem(err);
	if (!st)
		st = join_history(a, b, err);
	if (st)
		goto out;
	take_names(&a->session, &a->n_session, &sessions);
	take_names(&a->type, &a->n_type, &types);
	free(a->req);
	free(a->block);
	a->req = both.req;
	a->n = both.n;
	a->block = both.block;
	a->n_block = both.n_block;
	both = (struct trace){ 0 };
	if (!a->block_tok)
		a->block_tok = b->block_tok;
	a->has_epoch = align == ALIGN_CLOCK;
	a->epoch_ns = epoch;
out:
	names_release(&sessions);
	names_release(&types);
	free(both.req);
	free(both.block);
	free(session);
	free(type);
	return st;
}

/* ---- repeat ---- */

double trace_period_ns(const struct trace *t)
{
	double span = (double)(t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns);

	return t->n > 1 ? span * ((double)t->n / (double)(t->n - 1)) : 0;
}

static enum ar_status settle_period(const struct trace *t, int64_t n, int64_t *period_ns,
				    struct ar_err *err)
{
	int64_t span = t->req[t->n - 1].arrival_ns - t->req[0].arrival_ns;

	if (!*period_ns && !span)
		return ar_fail(err, AR_USAGE, "--repeat: all requests arrive together; say with "
			       "--repeat-period when the next ones do");
	if (!*period_ns)
		*period_ns = (int64_t)trace_period_ns(t);
	if (*period_ns < span)
		return ar_fail(err, AR_USAGE,
			       "--repeat-period is shorter than the trace, which takes %.9f s",
			       (double)span * 1e-9);
	return trace_check_end(t, (double)t->req[t->n - 1].arrival_ns +
			       (double)*period_ns * (double)(n - 1), err);
}

/* Names for the sessions of n copies: session s of copy c becomes c * n_session + s. */
static bool repeat_names(struct trace *t, int64_t n)
{
	struct names all = { 0 };
	bool done = true;

	for (int64_t c = 0; c < n && t->n_session && done; c++)
		for (size_t s = 0; s < t->n_session && done; s++)
			done = names_put_new(&all, t->session[s], (unsigned)c + 1);
	if (done && t->n_session)
		take_names(&t->session, &t->n_session, &all);
	names_release(&all);
	return done;
}

/* In place, from the last copy to the first.  There is room. */
static void repeat_requests(struct trace *t, int64_t n, int64_t period_ns, size_t n_session,
			    size_t n_block)
{
	for (int64_t c = n - 1; c > 0; c--)
		for (size_t i = 0; i < t->n; i++) {
			struct request *q = &t->req[(size_t)c * t->n + i];

			*q = t->req[i];
			q->arrival_ns += c * period_ns;
			q->block += (size_t)c * n_block;
			if (q->session >= 0)
				q->session += (int32_t)((size_t)c * n_session);
		}
	t->n *= (size_t)n;
}

enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err)
{
	struct trace made = { .block = calloc(count_blocks(t) + 1, sizeof *t->block) };
	struct chain ids = { 0 };
	bool done = made.block;

	for (size_t i = 0; i < t->n && done; i++)
		done = put_blocks(&made, &t->req[i], t->block, 0, &ids);
	*n_ids = ids.n;
	chain_release(&ids);
	free(done ? t->block : made.block);
	if (!done)
		return ar_nomem(err);
	t->block = made.block;
	t->n_block = made.n_block;
	return AR_OK;
}

/* The blocks of the trace n times over, all with different ids. */
static enum ar_status repeat_blocks(struct trace *t, int64_t n, struct ar_err *err)
{
	uint64_t n_ids, *block;
	enum ar_status st = trace_number_blocks(t, &n_ids, err);
	size_t one = t->n_block, all = (size_t)n * one;

	if (st)
		return st;
	block = realloc(t->block, (all + 1) * sizeof *block);
	if (!block)
		return ar_nomem(err);
	for (size_t k = one; k < all; k++)
		block[k] = block[k - one] + n_ids;
	t->block = block;
	t->n_block = all;
	return AR_OK;
}

enum ar_status trace_repeat(struct trace *t, int64_t n, int64_t period_ns, bool share,
			    struct ar_err *err)
{
	size_t n_session = t->n_session, n_block;
	enum ar_status st = settle_period(t, n, &period_ns, err);
	struct request *req;

	if (st)
		return st;
	if ((uint64_t)n > INT32_MAX / (n_session + 1) || (uint64_t)n > UINT32_MAX / t->n)
		return ar_fail(err, AR_USAGE, "--repeat %" PRId64 " makes too many requests", n);
	req = realloc(t->req, (size_t)n * t->n * sizeof *req);
	if (!req)
		return ar_nomem(err);
	t->req = req;
	if (!share)
		st = repeat_blocks(t, n, err);
	if (!st && !repeat_names(t, n))
		st = ar_nomem(err);
	if (st)
		return st;
	n_block = share ? 0 : t->n_block / (size_t)n;
	repeat_requests(t, n, period_ns, n_session, n_block);
	return AR_OK;
}

/* ---- longer and shorter prompts ---- */

/* Blocks keep their size.  Block j of the result ends at token (j + 1) / x of the source, in its
 * block m; two prompts share the former where they share the latter. */
static bool scale_blocks(struct trace *made, struct request *q, const struct trace *t, double x,
			 struct chain *ids)
{
	uint32_t n = (q->prompt_tok + t->block_tok - 1) / t->block_tok;
	struct chain_key key = { .prev = CHAIN_START };
	size_t at = made->n_block;

	for (uint32_t j = 0; j < n; j++) {
		double m = ceil((double)(j + 1) / x - 1e-9) - 1;

		key.src = t->block[q->block + (m < q->n_block ? (uint32_t)m : q->n_block - 1)];
		key.tail = j + 1 == n ? q->prompt_tok % t->block_tok : 0;
		if (!chain_put(ids, key, ids->n, &key.prev))
			return false;
		made->block[made->n_block++] = key.prev;
	}
	q->block = at;
	q->n_block = n;
	return true;
}

enum ar_status trace_scale_prompts(struct trace *t, double x, struct ar_err *err)
{
	struct trace made = { 0 };
	struct chain ids = { 0 };
	size_t n_block = 1;
	bool done;

	for (size_t i = 0; i < t->n; i++) {
		double n = floor(t->req[i].prompt_tok * x + 0.5);

		if (n > INT32_MAX)
			return ar_fail(err, AR_USAGE,
				       "--prompt-scale %g: a prompt of %u tokens gets too long",
				       x, t->req[i].prompt_tok);
		t->req[i].prompt_tok = n < 1 ? 1 : (uint32_t)n;
		if (t->req[i].n_block)
			n_block += t->req[i].prompt_tok / t->block_tok + 1;
	}
	made.block = malloc(n_block * sizeof *made.block);
	done = made.block;
	for (size_t i = 0; i < t->n && done; i++)
		if (t->req[i].n_block)
			done = scale_blocks(&made, &t->req[i], t, x, &ids);
	chain_release(&ids);
	if (!done) {
		free(made.block);
		return ar_nomem(err);
	}
	free(t->block);
	t->block = made.block;
	t->n_block = made.n_block;
	return AR_OK;
}
