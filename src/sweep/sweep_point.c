/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/sweep_point.h"

#include <sha256.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kernels/methods/method.h"
#include "profiler/store/store.h"
#include "src/tune/match.h"

/* The methods of all points. */
static enum ar_status file_methods(const struct sweep *s, struct texts *out, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < s->n_line; i++)
		for (size_t k = 0; k < s->line[i].value.n && !st; k++) {
			const struct sweep_line *l = &s->line[i];
			struct texts some = { 0 };

			if (strcmp(l->name.v[k % l->name.n], "method"))
				continue;
			st = method_split(l->value.v[k], &some.v, &some.n, err);
			for (size_t j = 0; j < some.n && !st; j++)
				st = texts_add(out, some.v[j], strlen(some.v[j]), err);
			texts_release(&some);
		}
	return st;
}

/* A density that is of no point is a mistake. */
static enum ar_status check_densities(struct sweep_base *b, struct ar_err *err)
{
	const struct opt_list *density = run_options_densities(&b->o);
	struct texts method = { 0 };
	enum ar_status st = run_options_split_densities(&b->o, err);

	if (!st)
		st = file_methods(&b->file, &method, err);
	for (size_t i = 0; i < density->n && !st; i++)
		if (!run_options_density_used(density->v[i], method.v, method.n))
			st = ar_fail(err, AR_USAGE,
				     "%s: density '%s' has no effect: no method of the file has "
				     "this name; leave it out",
				     b->file.path, density->v[i]);
	texts_release(&method);
	return st;
}

enum ar_status sweep_base_open(struct sweep_base *b, const char *path, const char *version,
			       struct ar_err *err)
{
	enum ar_status st = run_options_init(&b->o, RUN_OWN_ALL, err);

	b->version = version;
	if (!st)
		st = sweep_load(&b->file, path, b->o.group, err);
	return st ? st : check_densities(b, err);
}

void sweep_base_release(struct sweep_base *b)
{
	sweep_release(&b->file);
	key_inputs_release(&b->inputs);
	run_options_release(&b->o);
}

/* ---- densities ---- */

/* Remove the options of this name, and their values. */
static void remove_option(struct texts *args, const char *option)
{
	size_t n = 0;

	for (size_t i = 0; i < args->n; i++) {
		if (strcmp(args->v[i], option)) {
			args->v[n++] = args->v[i];
			continue;
		}
		free(args->v[i++]);
		free(args->v[i]);
	}
	args->n = n;
}

/* A file has the densities of the methods of all points: leave the point its own. */
static enum ar_status own_densities(struct sweep_point *p, struct ar_err *err)
{
	static const char option[] = "--density";
	const struct opt_list *density = run_options_densities(&p->o);
	enum ar_status st;

	if (!density->n)
		return AR_OK;
	st = run_options_keep_densities(&p->o, p->method.v, p->method.n, err);
	remove_option(&p->args, option);
	for (size_t i = 0; i < density->n && !st; i++) {
		st = texts_add(&p->args, option, strlen(option), err);
		if (!st)
			st = texts_add(&p->args, density->v[i], strlen(density->v[i]), err);
	}
	return st;
}

/* ---- keys ---- */

/* List the runs of the point as cmd_run has them: one for each method, or one if there is none,
 * times --repeats. */
static enum ar_status list_methods(struct sweep_point *p, struct ar_err *err)
{
	if (backend_find(p->o.backend)->needs_model)
		return method_split(p->o.methods, &p->method.v, &p->method.n, err);
	return texts_add(&p->method, "", 0, err);
}

static size_t count_runs(const struct sweep_point *p)
{
	return p->method.n * (size_t)p->o.repeats;
}

/* Of run i, in the order of the command. */
static enum ar_status key_of_run(const struct sweep_point *p, struct sweep_base *b, size_t i,
				 const char *device, char key[RUN_KEY_SIZE], struct ar_err *err)
{
	const char *method = p->method.v[i % p->method.n];
	const struct run_key k = { .o = &p->o,
				   .backend = p->o.backend,
				   .method = *method ? method : NULL,
				   .repeat = i / p->method.n,
				   .device = device,
				   .version = b->version };

	return run_key(key, &k, &b->inputs, err);
}

/* The key of a point does not depend on the GPU that it runs on. */
static enum ar_status assume_gpu(struct sweep_point *p, struct ar_err *err)
{
	struct engine_gpu gpu;
	enum ar_status st = AR_OK;

	if (!backend_find(p->o.backend)->uses_gpu)
		return AR_OK;
	st = run_engine_gpu(&gpu, err);
	return st ? st : run_engine_defaults(&p->o, &gpu, err);
}

static enum ar_status make_key(struct sweep_point *p, struct sweep_base *b, struct ar_err *err)
{
	char hex[SHA256_DIGEST_STRING_LENGTH], key[RUN_KEY_SIZE];
	enum ar_status st = AR_OK;
	SHA2_CTX sha;

	SHA256Init(&sha);
	for (size_t i = 0; i < p->method.n && !st; i++) {
		st = key_of_run(p, b, i, NULL, key, err);
		if (!st)
			SHA256Update(&sha, (const uint8_t *)key, strlen(key));
	}
	SHA256End(&sha, hex);
	snprintf(p->key, sizeof p->key, "%.*s", RUN_KEY_SIZE - 1, hex);
	return st;
}

enum ar_status sweep_point_open(struct sweep_point *p, struct sweep_base *b, size_t number,
				struct ar_err *err)
{
	enum ar_status st;

	*p = (struct sweep_point){ .number = number };
	st = sweep_arguments(&b->file, number, b->o.group, &p->args, err);
	if (!st)
		st = run_options_parse(&p->o, NULL, (int)p->args.n, p->args.v, err);
	if (!st && p->o.match)
		st = match_check(p->o.match, err);
	if (!st && !backend_find(p->o.backend))
		st = ar_fail(err, AR_USAGE,
			     "backend 'auto': points may run on several machines; add 'backend = "
			     "cuda', cpu or cost");
	if (!st) /* each point has a database, so options of one have an effect */
		st = opt_set(p->o.group, "db", "point.db", err);
	if (!st)
		st = run_options_check(&p->o, backend_find(p->o.backend), err);
	if (!st)
		st = list_methods(p, err);
	if (!st)
		st = own_densities(p, err);
	if (!st)
		st = assume_gpu(p, err);
	if (!st)
		st = make_key(p, b, err);
	if (st)
		ar_err_prefix(err, "%s: point %zu", b->file.path, number);
	return st;
}

void sweep_point_release(struct sweep_point *p)
{
	texts_release(&p->args);
	texts_release(&p->method);
	run_options_release(&p->o);
}

/* ---- databases ---- */

/* The key and GPU of each run; the key is NULL if the run is not finished. */
static const char runs_sql[] =
	"SELECT iif(status = 'done', run_key, NULL), g.name, mem_bytes FROM run LEFT JOIN gpu g "
	"USING(gpu_id) ORDER BY run_id";

/* A key of a GPU's run has the name of the GPU, and the defaults of the engine on it.  Only the
 * database knows them. */
static bool is_run(struct sweep_point *p, struct sweep_base *b, size_t i, sqlite3_stmt *q)
{
	const bool gpu = backend_find(p->o.backend)->uses_gpu;
	const char *key = (const char *)sqlite3_column_text(q, 0);
	const char *device = gpu ? (const char *)sqlite3_column_text(q, 1) : NULL;
	struct engine_gpu on = { .bytes = sqlite3_column_int64(q, 2),
				 .from = "of the run",
				 .real = true };
	char want[RUN_KEY_SIZE];

	snprintf(on.name, sizeof on.name, "%s", device ? device : "");
	if (device && run_engine_defaults(&p->o, &on, NULL))
		return false;
	return i < count_runs(p) && key && !key_of_run(p, b, i, device, want, NULL) &&
	       !strcmp(key, want);
}

bool sweep_point_done(struct sweep_point *p, struct sweep_base *b, const char *path)
{
	sqlite3_stmt *q = NULL;
	sqlite3 *db = NULL;
	size_t n = 0;
	bool same;

	if (store_open_tables(&db, path, NULL))
		return false;
	same = !sqlite3_prepare_v2(db, runs_sql, -1, &q, NULL);
	while (same && sqlite3_step(q) == SQLITE_ROW)
		same = is_run(p, b, n++, q);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return same && n == count_runs(p);
}

/* ---- the command line ---- */

/* Bytes that a terminal would obey, within a word in quotes. */
static void put_octal(const char *s, int n, FILE *f)
{
	fputs("'\"$(printf '", f);
	for (int i = 0; i < n; i++)
		fprintf(f, "\\%03o", (unsigned char)s[i]);
	fputs("')\"'", f);
}

static void put_word(const char *s, FILE *f)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-+=.,:/@%";
	int n;

	putc(' ', f);
	if (*s && !s[strspn(s, plain)]) {
		fputs(s, f);
		return;
	}
	putc('\'', f);
	for (; *s; s += n) {
		bool shown = text_plain(s, &n);

		if (*s == '\'')
			fputs("'\\''", f);
		else if (shown || *s == '\n')
			fwrite(s, 1, (size_t)n, f);
		else
			put_octal(s, n, f);
	}
	putc('\'', f);
}

void sweep_point_show(const struct sweep_point *p, FILE *f)
{
	fputs("attnreplay run", f);
	for (size_t i = 0; i < p->args.n; i++)
		put_word(p->args.v[i], f);
	putc('\n', f);
}
