/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a resumed command still has the input files of its runs so far. */
#include "config.h"
#include "src/run/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/revision.h"
#include "src/run/run.h"

static enum ar_status changed(const struct resumed *old, const char *file, const char *word,
			      struct ar_err *err)
{
	return ar_fail(err, AR_DATA,
		       "%s: changed since run %" PRId64 " of %s, which cannot be resumed without "
		       "its %s",
		       file, old->run, old->db, word);
}

/* Whether capture i has a checksum in the database. */
static bool has_sum(const struct resumed *old, size_t i)
{
	return i < old->n_capture && old->capture_sha256[i] && *old->capture_sha256[i];
}

static enum ar_status check_captures(const struct run_inputs *in, const struct run_options *o,
				     struct ar_err *err)
{
	const struct resumed *old = o->resumed;

	for (size_t i = 0; i < in->n_capture; i++)
		if (has_sum(old, i) &&
		    (!in->capture[i] ||
		     strcmp(capture_info(in->capture[i])->sha256, old->capture_sha256[i]) != 0))
			return changed(old, o->captures.v[i], "capture", err);
	return AR_OK;
}

/* ---- inputs that only keys know ---- */

/* Whether it is a capture that was compared. */
static bool is_known(const struct run_inputs *in, const struct run_options *o,
		     const struct key_input *x)
{
	for (size_t i = 0; i < in->n_capture && !strcmp(x->name, "capture"); i++)
		if (has_sum(o->resumed, i) && !strcmp(o->captures.v[i], x->value))
			return true;
	return false;
}

/* Whether the input is a file, or a method that names one, which nothing else compared.
 * p: the method of the key, or NULL. */
static bool is_suspect(const struct run_inputs *in, const struct run_options *o,
		       const struct key_input *x, const struct plan *p)
{
	static const char *const others[] = { "trace", "merge", "model", "num-gpu-blocks", NULL };

	for (int i = 0; others[i]; i++)
		if (!strcmp(others[i], x->name))
			return false;
	if (!strcmp(x->name, "method"))
		return !strcmp(x->value, p->name) &&
		       (plan_file(p->name) || strcmp(x->text, p->params) != 0);
	return strcmp(x->text, x->value) != 0 && !is_known(in, o, x);
}

static void list_suspects(const struct run_inputs *in, const struct run_session *s,
			  const struct plan *p, char *text, size_t size)
{
	size_t n = 0;

	*text = 0;
	for (size_t i = 0; i < s->keys.n && n < size; i++) {
		const struct key_input *x = &s->keys.v[i];

		if (is_suspect(in, &s->o, x, p))
			n += (size_t)snprintf(text + n, size - n, "%s%s %s", n ? ", " : "", x->name,
					      x->value);
	}
}

/* Keys of another version cannot be compared, as its options may differ.  Nor can keys of a GPU
 * from a build with uncommitted changes. */
static bool is_comparable(const struct resumed_key *k)
{
	static const char dirty[] = "-dirty";
	const size_t n = strlen(AR_REVISION), m = sizeof dirty - 1;

	return k->key && !strcmp(k->version, AR_REVISION) &&
	       !(k->device && n >= m && !strcmp(AR_REVISION + n - m, dirty));
}

static enum ar_status check_key(const struct run_inputs *in, struct run_session *s,
				const struct resumed_key *old, struct ar_err *err)
{
	const struct plan *p = in->plan ? in->plan[old->i] : NULL;
	const struct run_key k = { .o = &s->o,
				   .backend = s->o.resumed->backend,
				   .method = p ? p->name : NULL,
				   .repeat = old->i / in->n_methods,
				   .device = old->device,
				   .version = old->version,
				   .trace_sha256 = in->trace->sha256 };
	char key[RUN_KEY_SIZE], suspects[1024];
	enum ar_status st;

	if (!is_comparable(old))
		return AR_OK;
	st = run_key(key, &k, &s->keys, err);
	if (st || !strcmp(key, old->key))
		return st;
	list_suspects(in, s, p, suspects, sizeof suspects);
	return ar_fail(err, AR_DATA,
		       "%s: an input file changed since run %" PRId64 ", and the command cannot be "
		       "resumed without it; it is one of: %s",
		       s->o.resumed->db, old->run, suspects);
}

enum ar_status resume_check(struct run *r, struct ar_err *err)
{
	const struct resumed *old = r->session.o.resumed;
	enum ar_status st;

	if (strcmp(r->in.trace->sha256, old->trace_sha256) != 0 ||
	    (int64_t)r->in.trace->n != old->n_requests)
		return changed(old, r->session.o.trace, "trace", err);
	if (r->in.plan && (!old->model_json || strcmp(r->in.model.json, old->model_json) != 0))
		return changed(old, r->session.o.model ? r->session.o.model : r->session.o.weights,
			       "model", err);
	st = check_captures(&r->in, &r->session.o, err);
	for (size_t i = 0; i < old->n_key && !st; i++)
		st = check_key(&r->in, &r->session, &old->key[i], err);
	return st;
}
