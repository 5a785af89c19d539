/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/results.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/paired.h"

static const struct eval_run nothing = {
	.executed = NAN, .recall = NAN, .rel_l2 = NAN, .ttft_ms = NAN
};

/* ---- memory ---- */

/* Map a file of dir that has no name.  Its blocks are allocated now, because a write to a mapping
 * cannot fail later.  Returns an errno. */
static int map_file(const char *dir, size_t bytes, float **out)
{
	char path[4096];
	int fd, error;
	void *p;

	if (snprintf(path, sizeof path, "%s/attnreplay-XXXXXX", dir) >= (int)sizeof path)
		return ENAMETOOLONG;
	fd = mkstemp(path);
	if (fd < 0)
		return errno;
	unlink(path);
	error = posix_fallocate(fd, 0, (off_t)bytes);
	if (!error) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		error = p == MAP_FAILED ? errno : 0;
		if (!error)
			*out = p;
	}
	close(fd);
	return error;
}

static void keep_dense(struct eval_results *e, const char *dir)
{
	const size_t bytes = e->n_row * (size_t)e->vocab * sizeof *e->dense;
	const int error = map_file(dir, bytes, &e->dense);

	e->n_dense = error ? 0 : bytes;
	if (error)
		log_warn("%s: the logits of dense attention take %.3g MB, which cannot be "
			 "kept: %s; KL is left out",
			 dir, (double)bytes / 1e6, strerror(error));
}

static enum ar_status map_shared(struct eval_results *e, struct ar_err *err)
{
	const size_t n = e->n_run * e->n_row;
	void *p;

	e->n_shared = n * sizeof *e->token + e->n_run * sizeof *e->run + n * sizeof *e->scored;
	p = mmap(NULL, e->n_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return ar_nomem(err);
	e->shared = e->token = p;
	e->run = (struct eval_run *)(e->token + n);
	e->scored = (bool *)(e->run + e->n_run);
	for (size_t i = 0; i < e->n_run; i++)
		e->run[i] = nothing;
	return AR_OK;
}

enum ar_status eval_results_open(struct eval_results *e, const struct trace *trace, int vocab,
				 size_t n_run, const char *dir, struct ar_err *err)
{
	enum ar_status st;

	*e = (struct eval_results){ .n_run = n_run, .n_req = trace->n, .vocab = vocab };
	e->first = calloc(trace->n + 1, sizeof *e->first);
	if (!e->first)
		return ar_nomem(err);
	for (size_t i = 0; i < trace->n; i++)
		e->first[i + 1] = e->first[i] + trace->req[i].output_tok;
	e->n_row = e->first[trace->n];
	st = map_shared(e, err);
	if (!st && dir)
		keep_dense(e, dir);
	if (st)
		eval_results_close(e);
	return st;
}

void eval_results_close(struct eval_results *e)
{
	if (e->shared)
		munmap(e->shared, e->n_shared);
	if (e->dense)
		munmap(e->dense, e->n_dense);
	free(e->first);
	*e = (struct eval_results){ 0 };
}

/* ---- scores ---- */

void eval_results_add(struct eval_results *e, size_t i, const struct tokens_row *row)
{
	const size_t at = e->first[row->req] + row->out;
	float *dense = e->dense ? e->dense + at * (size_t)e->vocab : NULL;

	if (dense && !i)
		memcpy(dense, row->logits, (size_t)e->vocab * sizeof *dense);
	/* A row that dense attention has not run has no logits. */
	e->token[i * e->n_row + at] = eval_score(row->logits, e->scored[at] || !i ? dense : NULL,
						 e->vocab, row->next);
	e->scored[i * e->n_row + at] = true;
}

void eval_results_clear(struct eval_results *e, size_t i)
{
	e->run[i] = nothing;
	memset(e->scored + i * e->n_row, 0, e->n_row * sizeof *e->scored);
}

bool eval_results_answer(const struct eval_results *e, size_t i, size_t req, struct eval_answer *a)
{
	const size_t from = i * e->n_row + e->first[req], to = i * e->n_row + e->first[req + 1];

	*a = (struct eval_answer){ .n = (uint32_t)(to - from) };
	for (size_t k = from; k < to; k++) {
		const struct eval_token *t = &e->token[k];

		if (!e->scored[k])
			return false;
		a->n_best += !t->rank;
		a->rank_max = t->rank > a->rank_max ? t->rank : a->rank_max;
		a->logprob += t->logprob;
		a->kl += t->kl;
	}
	return true;
}

struct eval_summary eval_results_summary(const struct eval_results *e, size_t i)
{
	struct eval_summary s = { .run = e->run[i] };

	for (size_t q = 0; q < e->n_req; q++) {
		struct eval_answer a, d;

		if (!eval_results_answer(e, i, q, &a))
			continue;
		s.n++;
		s.exact += a.n_best == a.n;
		s.logprob += a.logprob / a.n;
		s.kl += a.kl / a.n;
		if (!eval_results_answer(e, 0, q, &d))
			continue;
		s.n_pair++;
		s.lost += d.n_best == d.n && a.n_best < a.n;
		s.won += a.n_best == a.n && d.n_best < d.n;
		s.diff += (a.logprob - d.logprob) / a.n;
	}
	s.logprob /= (double)s.n;
	s.kl /= (double)s.n;
	s.diff /= (double)s.n_pair;
	s.p = paired_mcnemar((int64_t)s.lost, (int64_t)s.won);
	return s;
}
