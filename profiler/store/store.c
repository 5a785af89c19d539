/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiler/store/process.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_stage.h"
#include "profiler/store/store_writer.h"

enum {
	QUEUE_BYTES = 16 << 20, /* the caller waits while more are queued */
	CHUNK_BYTES = 16 << 10, /* of an allocation that messages share */
	IDLE_NS = 250000000,	/* a pause this long ends the transaction */
};

enum msg_kind { MSG_RUN_BEGIN, MSG_ITERATION, MSG_ROW, MSG_ENERGY, MSG_RUN_END };

/* A call of store.h in the queue of the writer.  Pointers of its struct point into data.  The calls
 * of begin and end wait for the writer, so their pointers stay valid without a copy. */
struct msg {
	enum msg_kind kind;
	size_t size; /* of the message; the next one follows */
	union {
		struct {
			const struct store_run *run;
			int64_t *run_id;
		} begin;
		struct {
			const char *status;
			const struct prof_loss *loss;
			const struct store_counts *counts;
		} end;
		struct store_iteration iteration;
		struct {
			enum table_id table;
			void *row;
		} row;
		struct energy_use energy;
	};
	_Alignas(16) char data[];
};

struct chunk {
	struct chunk *next;
	size_t size, room; /* bytes of data: used, allocated */
	_Alignas(16) char data[];
};

struct store {
	struct writer *w; /* used by the thread alone until it is joined */
	pthread_t thread;

	pthread_mutex_t lock; /* guards all members below */
	pthread_cond_t filled, drained;
	struct chunk *head, *tail;
	size_t bytes;	   /* of all messages that are still to be written */
	bool stop;	   /* end the thread when the queue is empty */
	bool hurry, rests; /* the writer is to commit and wait; it waits for messages alone */
	struct ar_err err; /* the first failure; nothing is written after it */
};

/* ---- the writer's side ---- */

static enum ar_status work_off(struct writer *w, struct msg *m, struct ar_err *err)
{
	switch (m->kind) {
	case MSG_RUN_BEGIN: return writer_run_begin(w, m->begin.run, m->begin.run_id, err);
	case MSG_ITERATION: return writer_iteration(w, &m->iteration, err);
	case MSG_ROW: return writer_row(w, m->row.table, m->row.row, err);
	case MSG_ENERGY: return writer_energy(w, &m->energy, err);
	case MSG_RUN_END: return writer_run_end(w, m->end.status, m->end.loss, m->end.counts, err);
	}
	return AR_OK;
}

/* Wait for messages and take them all.  NULL: none came for IDLE_NS while a transaction was open,
 * or *stop is true. */
static struct chunk *take_all(struct store *s, bool *stop)
{
	bool timed = writer_age_ns(s->w) > 0 && !s->err.status;
	struct timespec until;
	struct chunk *c;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += IDLE_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	while (!s->head && !s->stop && !rc && !(timed && s->hurry)) {
		s->rests = !timed;
		pthread_cond_broadcast(&s->drained);
		if (timed)
			rc = pthread_cond_timedwait(&s->filled, &s->lock, &until);
		else
			pthread_cond_wait(&s->filled, &s->lock);
	}
	s->rests = false;
	c = s->head;
	s->head = s->tail = NULL;
	*stop = !c && s->stop;
	pthread_mutex_unlock(&s->lock);
	return c;
}

static void latch(struct store *s, const struct ar_err *err)
{
	pthread_mutex_lock(&s->lock);
	s->err = *err;
	pthread_mutex_unlock(&s->lock);
}

static enum ar_status work_off_all(struct writer *w, struct chunk *c, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t at = 0; at < c->size && !st;) {
		struct msg *m = (struct msg *)(c->data + at);

		st = work_off(w, m, err);
		at += m->size;
	}
	return st;
}

static void *writer_main(void *arg)
{
	struct store *s = arg;
	struct ar_err err = { 0 };
	enum ar_status failed = AR_OK;
	bool stop = false;

	while (!stop) {
		struct chunk *c = take_all(s, &stop), *next;

		if (!c && !failed && (failed = writer_commit(s->w, &err)))
			latch(s, &err);
		for (; c; c = next) {
			next = c->next;
			if (!failed && (failed = work_off_all(s->w, c, &err)))
				latch(s, &err);
			pthread_mutex_lock(&s->lock);
			s->bytes -= c->size;
			pthread_cond_broadcast(&s->drained);
			pthread_mutex_unlock(&s->lock);
			free(c);
		}
	}
	return NULL;
}

/* ---- the caller's side ---- */

static size_t padded(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

static struct chunk *add_chunk(struct store *s, size_t n)
{
	size_t room = n > CHUNK_BYTES ? n : CHUNK_BYTES;
	struct chunk *c = malloc(sizeof *c + room);

	if (!c)
		return NULL;
	*c = (struct chunk){ .room = room };
	if (s->tail)
		s->tail->next = c;
	else
		s->head = c;
	s->tail = c;
	return c;
}

/* Append a message to the queue, which stays locked until send().  NULL: no memory, not locked. */
static struct msg *msg_new(struct store *s, enum msg_kind kind, size_t n_data)
{
	const size_t n = sizeof(struct msg) + n_data;
	struct chunk *c;
	struct msg *m;

	pthread_mutex_lock(&s->lock);
	c = s->tail;
	if (!c || c->room - c->size < n)
		c = add_chunk(s, n);
	if (!c) {
		pthread_mutex_unlock(&s->lock);
		return NULL;
	}
	m = (struct msg *)(c->data + c->size);
	m->kind = kind;
	m->size = n;
	c->size += n;
	s->bytes += n;
	return m;
}

/* Unlock the queue and wake the writer.  Returns when at most most_bytes are queued. */
static enum ar_status send(struct store *s, size_t most_bytes, struct ar_err *err)
{
	enum ar_status st;

	pthread_cond_signal(&s->filled);
	while (s->bytes > most_bytes)
		pthread_cond_wait(&s->drained, &s->lock);
	st = s->err.status;
	if (st && err)
		*err = s->err;
	pthread_mutex_unlock(&s->lock);
	return st;
}

void store_rest(struct store *s)
{
	pthread_mutex_lock(&s->lock);
	s->hurry = true;
	pthread_cond_signal(&s->filled);
	while (s->head || !s->rests) /* it may not have seen the last message yet */
		pthread_cond_wait(&s->drained, &s->lock);
	s->hurry = false;
	pthread_mutex_unlock(&s->lock);
}

/* Append n bytes to a message's data. */
static void *append_bytes(char **to, const void *from, size_t n)
{
	void *p = *to;

	if (!from)
		return NULL;
	memcpy(p, from, n);
	*to += padded(n);
	return p;
}

static size_t text_size(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err)
{
	const size_t n_entry = it->entry ? it->n_entry * sizeof *it->entry : 0;
	const size_t n_kernel = it->n_kernel * sizeof *it->kernel;
	const size_t n_ns = !!it->phase_ns * PHASE_COUNT * sizeof *it->phase_ns;
	const size_t n_count = !!it->phase_kernels * PHASE_COUNT * sizeof *it->phase_kernels;
	const size_t n_drop = it->n_drop * sizeof *it->drop;
	const size_t n_rank = it->n_rank * sizeof *it->rank;
	struct msg *m = msg_new(s, MSG_ITERATION,
				padded(n_entry) + padded(n_kernel) + padded(n_ns) +
					padded(n_count) + padded(n_drop) + padded(n_rank));
	char *to;

	if (!m)
		return ar_nomem(err);
	m->iteration = *it;
	to = m->data;
	m->iteration.entry = append_bytes(&to, it->entry, n_entry);
	m->iteration.kernel = append_bytes(&to, it->kernel, n_kernel);
	m->iteration.phase_ns = append_bytes(&to, it->phase_ns, n_ns);
	m->iteration.phase_kernels = append_bytes(&to, it->phase_kernels, n_count);
	m->iteration.drop = append_bytes(&to, it->drop, n_drop);
	m->iteration.rank = append_bytes(&to, it->rank, n_rank);
	return send(s, QUEUE_BYTES, err);
}

/* The text of column i in a row of t; NULL: the row has no text there. */
static const char **text_in(const struct table *t, int i, void *row)
{
	const struct column *c = &t->col[i];

	return c->type == COLUMN_TEXT && c->set == SET_BY_INSERT ?
		       (const char **)((char *)row + c->off) :
		       NULL;
}

/* Queue a row of the run, a struct row_TABLE, and copies of its texts. */
static enum ar_status send_row(struct store *s, enum table_id id, const void *row,
			       struct ar_err *err)
{
	const struct table *t = &store_tables[id];
	size_t n = padded(t->row_size);
	struct msg *m;
	char *to;

	for (int i = 0; i < t->n_col; i++) {
		const char **text = text_in(t, i, (void *)row);

		n += text ? padded(text_size(*text)) : 0;
	}
	m = msg_new(s, MSG_ROW, n);
	if (!m)
		return ar_nomem(err);
	to = m->data;
	m->row.table = id;
	m->row.row = append_bytes(&to, row, t->row_size);
	for (int i = 0; i < t->n_col; i++) {
		const char **text = text_in(t, i, m->row.row);

		if (text)
			*text = append_bytes(&to, *text, text_size(*text));
	}
	return send(s, QUEUE_BYTES, err);
}

enum ar_status store_outcome(struct store *s, const struct row_request_outcome *o,
			     struct ar_err *err)
{
	return send_row(s, TABLE_request_outcome, o, err);
}

enum ar_status store_gap(struct store *s, const struct row_token_gap *g, struct ar_err *err)
{
	return send_row(s, TABLE_token_gap, g, err);
}

enum ar_status store_accuracy(struct store *s, const struct row_accuracy_sample *a,
			      struct ar_err *err)
{
	return send_row(s, TABLE_accuracy_sample, a, err);
}

enum ar_status store_selection(struct store *s, const struct store_selection *a, struct ar_err *err)
{
	struct row_selection_stat row = a->row;

#define X(name, doc) row.name = a->count.name;
	SELECTION_COUNTS(X)
	SKIP_COUNTS(X)
#undef X
	return send_row(s, TABLE_selection_stat, &row, err);
}

enum ar_status store_group(struct store *s, const struct row_kv_group *g, struct ar_err *err)
{
	return send_row(s, TABLE_kv_group, g, err);
}

enum ar_status store_rank(struct store *s, const struct row_run_rank *r, struct ar_err *err)
{
	return send_row(s, TABLE_run_rank, r, err);
}

enum ar_status store_layer(struct store *s, const struct row_run_layer *l, struct ar_err *err)
{
	return send_row(s, TABLE_run_layer, l, err);
}

enum ar_status store_turn(struct store *s, const struct row_request_turn *t, struct ar_err *err)
{
	return send_row(s, TABLE_request_turn, t, err);
}

enum ar_status store_hot_buffer(struct store *s, const struct row_hot_buffer *h, struct ar_err *err)
{
	return send_row(s, TABLE_hot_buffer, h, err);
}

enum ar_status store_layer_phase(struct store *s, const struct row_layer_phase *x,
				 struct ar_err *err)
{
	return send_row(s, TABLE_layer_phase, x, err);
}

enum ar_status store_kept(struct store *s, const struct row_drop_sample *x, struct ar_err *err)
{
	return send_row(s, TABLE_drop_sample, x, err);
}

enum ar_status store_latent_form(struct store *s, const struct row_latent_form *f,
				 struct ar_err *err)
{
	return send_row(s, TABLE_latent_form, f, err);
}

enum ar_status store_eval_prompt(struct store *s, const struct row_eval_prompt *p,
				 struct ar_err *err)
{
	return send_row(s, TABLE_eval_prompt, p, err);
}

enum ar_status store_eval_token(struct store *s, const struct row_eval_token *t, struct ar_err *err)
{
	return send_row(s, TABLE_eval_token, t, err);
}

enum ar_status store_resampling(struct store *s, const struct row_resampling *r, struct ar_err *err)
{
	return send_row(s, TABLE_resampling, r, err);
}

enum ar_status store_replicate(struct store *s, const struct row_replicate *r, struct ar_err *err)
{
	return send_row(s, TABLE_replicate, r, err);
}

enum ar_status store_replicate_latency(struct store *s, const struct row_replicate_latency *l,
				       struct ar_err *err)
{
	return send_row(s, TABLE_replicate_latency, l, err);
}

enum ar_status store_energy(struct store *s, const struct energy_use *use, struct ar_err *err)
{
	struct msg *m = msg_new(s, MSG_ENERGY, 0);

	if (!m)
		return ar_nomem(err);
	m->energy = *use;
	return send(s, QUEUE_BYTES, err);
}

enum ar_status store_run_begin(struct store *s, const struct store_run *r, int64_t *run_id,
			       struct ar_err *err)
{
	struct msg *m = msg_new(s, MSG_RUN_BEGIN, 0);

	if (!m)
		return ar_nomem(err);
	m->begin.run = r;
	m->begin.run_id = run_id;
	return send(s, 0, err);
}

enum ar_status store_run_end(struct store *s, const char *status, const struct prof_loss *loss,
			     const struct store_counts *counts, struct ar_err *err)
{
	struct msg *m = msg_new(s, MSG_RUN_END, 0);

	if (!m)
		return ar_nomem(err);
	m->end.status = status;
	m->end.loss = loss;
	m->end.counts = counts;
	return send(s, 0, err);
}

/* Waits use the monotonic clock, because the wall clock may be set. */
static void init_queue(struct store *s)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->filled, &attr);
	pthread_cond_init(&s->drained, &attr);
	pthread_condattr_destroy(&attr);
}

static void destroy(struct store *s)
{
	pthread_cond_destroy(&s->filled);
	pthread_cond_destroy(&s->drained);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

enum ar_status store_open(struct store **out, const char *path, struct ar_err *err)
{
	struct store *s = calloc(1, sizeof *s);
	struct ar_err ignored;
	sqlite3 *db = NULL;
	enum ar_status st;

	*out = NULL;
	if (!s)
		return ar_nomem(err);
	init_queue(s);
	if (!store_file_is_blank(path))
		store_file_warn_log(path);
	st = store_file_open(&db, path, err);
	if (!st)
		st = writer_open(&s->w, db, path, STAGE_ITERATIONS, err);
	if (st)
		goto out;
	db = NULL;
	if (pthread_create(&s->thread, NULL, writer_main, s)) {
		st = ar_fail(err, AR_NOMEM, "cannot start the database's writer thread");
		goto out;
	}
	*out = s;
	s = NULL;
out:
	store_file_close(db, path, &ignored);
	if (s) {
		writer_close(s->w, &ignored);
		destroy(s);
	}
	return st;
}

static enum ar_status fail_runs(sqlite3 *db, const char *path, struct ar_err *err)
{
	const struct process self = process_here(getpid());
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;

	if (sqlite3_prepare_v2(db,
			       "UPDATE run SET status = 'failed' WHERE status = 'running' "
			       "AND pid = ? AND pid_start = ?",
			       -1, &q, NULL) ||
	    sqlite3_bind_int64(q, 1, self.pid) || sqlite3_bind_int64(q, 2, self.start) ||
	    sqlite3_step(q) != SQLITE_DONE)
		st = store_sql_fail(db, path, err);
	sqlite3_finalize(q);
	return st;
}

enum ar_status store_fail_runs(const char *path, struct ar_err *err)
{
	sqlite3 *db = NULL;
	enum ar_status st, st2;

	if (access(path, F_OK))
		return AR_OK;
	st = store_file_open(&db, path, err);
	if (!st)
		st = fail_runs(db, path, err);
	st2 = store_file_close(db, path, st ? NULL : err);
	return st ? st : st2;
}

enum ar_status store_close(struct store *s, struct ar_err *err)
{
	struct ar_err close_err = { 0 };
	enum ar_status st, close_st;

	if (!s)
		return AR_OK;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->filled);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	st = s->err.status;
	if (st && err)
		*err = s->err;
	close_st = writer_close(s->w, &close_err);
	if (!st && close_st) {
		st = close_st;
		if (err)
			*err = close_err;
	}
	destroy(s);
	return st;
}
