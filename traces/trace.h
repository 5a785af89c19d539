/* SPDX-License-Identifier: Apache-2.0 */
/* Request traces: the arrival times of requests and the lengths of their prompts and outputs. */
#ifndef AR_TRACE_H
#define AR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/opt.h"
#include "base/status.h"

struct cJSON;

struct request {
	int64_t arrival_ns;  /* since the start of the trace, >= 0 */
	uint32_t prompt_tok; /* >= 1, whole prompt as served */
	uint32_t output_tok; /* >= 1, first token included */
	uint32_t n_block;    /* prefix blocks: ceil(prompt_tok / block_tok), or 0 */
	int32_t priority;    /* lower is served first; 0 where the format has none */
	size_t run;	     /* the first run of them in trace.run ... */
	uint32_t n_run;	     /* ... and their number */
	int32_t session;     /* number of the session, -1: none */
	uint32_t turn;	     /* 0-based in the session */
	uint32_t back;	     /* see think_ns; 0: one turn */
	int64_t think_ns;    /* from the end of the turn `back` turns before to this arrival; -1:
			      * not recorded; undefined without a session.  Of the first
			      * turn of a session with a parent: from the end of turn
			      * `after` of that */
	uint64_t line;	     /* its line in the file */
	uint32_t type;	     /* index in trace.type plus 1; 0: none */
	uint32_t images;     /* in the prompt */
	uint32_t replica;    /* number plus 1 of the only engine that may run it; 0: any */
	bool warmup; /* it fills caches before what is measured, and is counted in nothing */
};

/* An empty request: no session and no think time. */
static const struct request request_none = { .session = -1, .think_ns = -1 };

/* Prefix blocks at, at + 1, ... of a prompt have the ids id, id + 1, ..., up to the next run.  Ids
 * are numbered by first appearance, so a prompt has few runs. */
struct block_run {
	uint64_t id; /* chained: equal id means equal whole prefix */
	uint32_t at;
};

/* How a session belongs to another one, its parent: a turn of the parent starts it, and may wait
 * for it to end. */
struct session_link {
	int32_t parent;	 /* number of that session; -1: none */
	uint32_t after;	 /* turn of the parent after whose end it starts */
	uint32_t join;	 /* turn of the parent that comes join_ns after its end ... */
	int64_t join_ns; /* -1: none does */
};
static const struct session_link session_link_none = { .parent = -1, .join_ns = -1 };

/* Requests are sorted by (arrival, file order); a request's number is its index. */
struct trace {
	struct request *req;
	size_t n;
	struct block_run *run;
	size_t n_run, cap_run;
	uint32_t block_tok; /* tokens of a prefix block; 0: no prefix identity */
	char **session;	    /* names, by number */
	size_t n_session;
	struct session_link *link; /* [n_session]; NULL: none has a parent */
	char **type;		   /* names, by number */
	size_t n_type;
	char *name;	 /* file name without folders, "<stdin>" */
	char *format;	 /* name of the importer */
	char sha256[65]; /* of the file as it was read, before decompression */
	bool has_epoch;
	int64_t epoch_ns;	  /* absolute time of arrival 0, since 1970 UTC */
	struct cJSON *sources;	  /* of a canonical file: array of its source files, or NULL */
	struct cJSON *transforms; /* strings: changes to the requests, in order; or NULL */
};

/* How the importer handles a restart of the clock: an arrival far before the last one. */
enum trace_restart { RESTART_ERROR, RESTART_SORT, RESTART_APPEND };
/* Content of the prompts of later turns: the whole session, or new tokens only (delta). */
enum trace_context { CONTEXT_AUTO, CONTEXT_CUMULATIVE, CONTEXT_DELTA };

/* Unit of times that are numbers. */
enum trace_unit { UNIT_AUTO, UNIT_S, UNIT_MS, UNIT_US, UNIT_NS };

/* Options for reading a file. */
struct import_args {
	char *format;		    /* --format, NULL: by content */
	char *columns;		    /* --columns, NULL: the format's own */
	int time_unit;		    /* --time-unit, enum trace_unit */
	int restart;		    /* --restart, enum trace_restart */
	int64_t period_ns;	    /* --restart-period, 0: append at the last arrival */
	int context;		    /* --context, enum trace_context */
	int64_t hash_tok;	    /* --hash-block, 0: the format's own */
	int64_t image_tok;	    /* --image-tokens */
	int warm_prefix;	    /* --warm-prefix, 1: tokens */
	int64_t max_memory;	    /* --max-memory, 0: half of the machine's */
	struct opt_list components; /* --components */
};

/* Options that shape a trace.  All 0: unchanged. */
struct trace_args {
	struct import_args in;
	struct opt_list merge; /* FILE[:NAME=VALUE,...] */
	int align;	       /* enum trace_align */
	int spread;	       /* enum trace_spread */
	int64_t step_ns;
	int64_t from_ns, to_ns; /* half open, in trace time; to 0: open */
	struct opt_list type;
	int64_t longest;	 /* prompt; 0: no limit */
	int64_t longest_request; /* prompt plus output; 0: no limit */
	int over_length;	 /* enum trace_over */
	char *session_starts;	 /* NULL: as they are */
	int session_order;	 /* 1: shuffled */
	char *start_within;	 /* "A:B", NULL: sessions begin with their first request */
	int64_t start_first;	 /* the first sessions that start_within is for, 0: all */
	double keep;
	int64_t skip, requests;
	double prompt_scale, output_scale;
	int64_t max_prompt, max_output;
	int64_t repeat, period_ns;
	bool repeat_prefixes;
	double time_scale, rate;
	int64_t shift_ns;
	int64_t seed;
};
extern const struct opt trace_opts[];

/* Read the trace in path and apply a.  "-" is standard input; zstd and gzip are recognised by
 * content.  The path may end in options of its own, as in "FILE:keep=0.5,shift=10s".  AR_DATA with
 * "FILE:LINE: ..." for malformed input, AR_USAGE for an impossible format or window.  The caller
 * owns *out. */
enum ar_status trace_read(struct trace **out, const char *path, const struct trace_args *a,
			  struct ar_err *err);
void trace_free(struct trace *t); /* NULL is fine */

/* The id of block k of request q, k < n_block. */
static inline uint64_t trace_block(const struct trace *t, const struct request *q, uint32_t k)
{
	const struct block_run *run = t->run + q->run;
	uint32_t lo = 0, hi = q->n_run;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		*(run[mid].at <= k ? &lo : &hi) = mid;
	}
	return run[lo].id + (k - run[lo].at);
}

/* The session that is not started by another one in the tree of session s. */
static inline int32_t trace_root(const struct trace *t, int32_t s)
{
	while (t->link && t->link[s].parent >= 0)
		s = t->link[s].parent;
	return s;
}

/* The number of the block after run i of request q. */
static inline uint32_t trace_run_end(const struct trace *t, const struct request *q, uint32_t i)
{
	return i + 1 < q->n_run ? t->run[q->run + i + 1].at : q->n_block;
}

/* Append a block to request q of t, whose runs are the last ones of t.  A request that has none is
 * to begin at t->n_run.  False: no memory. */
bool trace_put_block(struct trace *t, struct request *q, uint64_t id);
/* Append n blocks whose ids begin with id. */
bool trace_put_blocks(struct trace *t, struct request *q, uint64_t id, uint32_t n);
/* Append the first n blocks of request from, which has as many. */
bool trace_same_blocks(struct trace *t, struct request *q, const struct request *from, uint32_t n);
/* An id above those of all blocks. */
uint64_t trace_fresh_id(const struct trace *t);
/* Keep the first n blocks of q alone. */
void trace_cut_blocks(const struct trace *t, struct request *q, uint32_t n);

/* Turn the sha256 of a trace into that of the trace merged with another one. */
void trace_merge_sum(char sum[65], const char *with);

/* The length of the path in "FILE" or "FILE:NAME=VALUE,...". */
size_t trace_path_length(const char *spec);

/* Append a text to t->transforms, the list of changes. */
enum ar_status trace_note(struct trace *t, struct ar_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The files that t was made from as a new list; NULL: no memory. */
struct cJSON *trace_sources(const struct trace *t);

/* AR_USAGE: a trace that ends at end_ns exceeds the range of times. */
enum ar_status trace_check_end(const struct trace *t, double end_ns, struct ar_err *err);

/* The canonical JSONL form, byte for byte the same for equal traces. */
enum ar_status trace_write(const struct trace *t, FILE *f, struct ar_err *err);
/* Write one line of the canonical form: the header for n requests, or request q of t with number
 * id.  turns NULL: sessions stand alone.  False: no memory.  The caller checks f for errors. */
bool trace_put_header(const struct trace *t, size_t n, FILE *f);
struct turns;
void trace_put_request(const struct trace *t, const struct turns *turns, size_t id,
		       const struct request *q, FILE *f);

#endif
