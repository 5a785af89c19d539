/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Importers: one trace format each.  An importer is called once per record with the
 * record's fields as text and adds requests; the engine in import.c reads lines, splits
 * them, picks the importer, counts warnings, sorts and rebases.  One file
 * import_NAME.c each, one line in importer_list.h.
 */
#ifndef AR_IMPORT_H
#define AR_IMPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "traces/importers/date.h"
#include "traces/importers/trace_record.h"
#include "traces/intern.h"
#include "traces/trace.h"

/* ---- the engine (import.c) ---- */

enum import_warning {
	WARN_BLANK,
	WARN_CASE,
	WARN_COLUMN,
	WARN_KEY,
	WARN_FLOAT,
	WARN_ORDER,
	WARN_NO_PROMPT,
	WARN_NO_OUTPUT,
	WARN_EXTRA_BLOCK,
	WARN_NO_BLOCKS,
	WARN_TOTAL,
	WARN_PARENT,
	WARN_TURN,
	WARN_EARLIEST,
	WARN_DELTA,
	WARN_NO_TURNS,
	WARN_RESTART,
	WARN_UNIT,
	WARN_ONE_OUTPUT,
	WARN_NO_TIME,
	WARN_NO_THINK,
	WARN_NO_ARRIVAL,
	WARN_OVERLAP,
	WARN_COUNT
};

/* Position in a prompt that is built from texts: after block prev, with fill tokens in the next
 * block. */
struct cutter {
	uint64_t prev, node;
	uint32_t fill;
};
#define CUTTER_START \
	(struct cutter) \
	{ \
		CHAIN_START, CHAIN_START, 0 \
	}

/* Names of columns or keys that --columns gives, owned; NULL: not given. */
struct import_columns {
	char *arrival, *prompt, *output, *session, *priority, *replica, *prefix, *prefix_tok;
};

/* A text of a prompt: see import_cut(). */
struct import_text {
	uint64_t text;
	uint32_t kind, tok;
};

/* State of a session after its last turn, for the importer.  A turn without output is no request,
 * but is part of the history. */
struct import_session {
	bool begun;		  /* a turn was read */
	uint32_t turns;		  /* with output */
	int64_t start_ns, end_ns; /* of the last turn, in file time */
	int64_t idle_ns;	  /* delays of turns since the last request; -1: not recorded */
	uint32_t output_tok;	  /* of the last turn */
	uint64_t tok;		  /* prompt plus output of the last turn */
	struct request last;	  /* the full blocks of the last request's prompt */
	struct cutter end;	  /* end of the last request's prompt */
	struct import_text *text; /* [n_text] since then, owned */
	size_t n_text, cap_text;
	uint64_t ids;	/* chain of the last turn's full blocks ... */
	uint32_t n_ids; /* ... and their number */
	bool no_blocks; /* a turn had no prefix blocks */
};

struct import {
	struct trace *t; /* the result; arrivals in file time until the end */
	const struct import_args *args;
	const char *path;
	uint64_t line;
	size_t cap_req;
	struct request next;		   /* the blocks of the next request */
	size_t bytes;			   /* of the arrays that grow */
	int64_t first_ns, last_ns, max_ns; /* arrivals so far */
	int64_t begin_ns;		   /* start of the current recording */
	int64_t shift_ns;		   /* added to arrivals after a restart of the clock */
	bool unsorted;
	struct chain chain; /* block numbers */
	struct chain seen;  /* for the importer or for import_cut */
	struct intern_table session, type;
	struct import_session *ses; /* by number of the session */
	size_t cap_ses;
	size_t cap_link;	     /* of t->link */
	struct intern_table id;	     /* block ids that are strings */
	struct block_tree {	     /* of ids that have one id before them each */
		struct chain number; /* by id */
		uint64_t *before;    /* the id before, by number less first */
		size_t cap;
		uint64_t first; /* number of the first block of the tree */
	} tree;
	bool local_ids;	     /* each session has a tree */
	uint64_t own_ids;    /* blocks that import_own_blocks() made */
	struct round *round; /* until import_rounds_end() */
	size_t n_round, cap_round;
	enum date_zone zone;
	int64_t unit_ns; /* of all times, found from the first one; 0: that of the format */
	bool fractions;	 /* a time in the format's milliseconds is not whole */
	/* Later turns whose hash ids begin with those of the turn before, and all others. */
	uint64_t n_whole, n_new;
	struct import_columns columns;
	uint64_t promised; /* requests that the header announces */
	struct {
		uint64_t line, n;
	} warn[WARN_COUNT];
};

/* Options that only some formats use. */
enum { USES_CONTEXT = 1, USES_IMAGES = 2, USES_COMPONENTS = 4, USES_UNIT = 8, USES_WARM = 16 };

struct importer {
	const char *name; /* "azure" */
	const char *title;
	enum record_kind kind;
	const char *const *need; /* fields of every record, ended by NULL */
	const char *const *may;	 /* optional fields; NULL: the importer checks itself */
	unsigned uses;		 /* USES_... */
	bool timeless;		 /* its records have no times, or sessions no common clock */
	bool large;		 /* its records are: see record_text() */
	uint32_t block_tok;	 /* default tokens of a block; 0: none, or set by the importer */
	/* Return whether a first record with all fields of need fits this format.  NULL: yes. */
	bool (*sniff)(const struct record *first);
	enum ar_status (*start)(struct import *im, struct ar_err *err); /* may be NULL */
	enum ar_status (*record)(struct import *im, const struct record *r, struct ar_err *err);
	enum ar_status (*finish)(struct import *im, struct ar_err *err); /* may be NULL */
};

#define IMPORTER(name) extern const struct importer importer_##name;
#include "traces/importers/importer_list.h"
#undef IMPORTER

extern const struct importer *const importers[]; /* ends with NULL */

/* Pick the importer named format; NULL: the importer that fits the first record. */
enum ar_status importer_pick(const struct importer **out, const struct record *first,
			     const char *format, struct ar_err *err);

/* The first importer that fits; NULL: none. */
const struct importer *importer_fitting(const struct record *first);

/* The first importer that needs fields of which r, with names alone, has all; NULL: none. */
const struct importer *importer_named(const struct record *r);

/* AR_DATA: v, the only JSON value of a file, is of a kind that is known, see known_file(). */
enum ar_status importer_whole(const struct cJSON *v, struct ar_err *err);

/* The importer of the columns that --columns names. */
const struct importer *importer_columns(enum record_kind kind);
void import_columns_release(struct import *im);

/* Read all requests of the file, sorted by arrival. */
enum ar_status import_file(struct trace **out, const char *path, const struct import_args *a,
			   struct ar_err *err);

/* ---- for importers; their messages name file and line ---- */
enum ar_status import_fail(const struct import *im, struct ar_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void import_warn(struct import *im, enum import_warning w);

/* Read field name as an integer from 0 to 2^31 - 1. */
enum ar_status import_count(struct import *im, const struct record *r, const char *name,
			    uint32_t *out, struct ar_err *err);
/* Read the token counts of a request from the fields prompt and output.  A count without
 * a value is 0. */
enum ar_status import_lengths(struct import *im, const struct record *r, const char *prompt,
			      const char *output, struct request *q, struct ar_err *err);
/* Read field name as the number of the only engine that may run the request. */
enum ar_status import_replica(struct import *im, const struct record *r, const char *name,
			      struct request *q, struct ar_err *err);
/* Read field name as the request's priority. */
enum ar_status import_priority(struct import *im, const struct record *r, const char *name,
			       struct request *q, struct ar_err *err);
/* Read a field (in JSON a string), intern its text in the table in, and return its number. */
enum ar_status import_name(struct import *im, const struct record *r, const char *name,
			   struct intern_table *in, uint32_t *number, struct ar_err *err);
/* The same for the text of a JSON string. */
enum ar_status import_name_text(struct import *im, const char *name, struct span text,
				struct intern_table *in, uint32_t *number, struct ar_err *err);
/* Read a date and time.  All of a file have a zone, or none. */
enum ar_status import_date(struct import *im, const char *name, struct span text, int64_t *ns,
			   struct ar_err *err);
/* Read a non-negative decimal number of units of unit_ns, or of the unit of --time-unit.  If the
 * first time of a file is in a smaller unit since 1970, so are all. */
enum ar_status import_time(struct import *im, const struct record *r, const char *name,
			   int64_t unit_ns, int64_t *ns, struct ar_err *err);
enum ar_status import_time_text(struct import *im, const char *name, struct span text,
				int64_t unit_ns, int64_t *ns, struct ar_err *err);

/* Make room for an element more, see array_grow().  AR_DATA: --max-memory. */
enum ar_status import_room(struct import *im, void *array, size_t n, size_t *cap, size_t size,
			   struct ar_err *err);
/* Return whether the request has no prompt or no output, and count it if so. */
bool import_unserved(struct import *im, const struct request *q);
/* Add a prefix block to the next request. */
enum ar_status import_block(struct import *im, uint64_t id, struct ar_err *err);
/* Add n blocks whose ids begin with id. */
enum ar_status import_blocks(struct import *im, uint64_t id, uint32_t n, struct ar_err *err);
/* Add request q.  It takes the blocks that were added since the last request. */
enum ar_status import_add(struct import *im, struct request *q, struct ar_err *err);
/* Add a request of a session that has a clock of its own. */
enum ar_status import_add_apart(struct import *im, struct request *q, struct ar_err *err);
/* Add a turn without a recorded arrival; q holds its earliest possible arrival. */
enum ar_status import_add_earliest(struct import *im, struct request *q, struct ar_err *err);
/* The state of the session with this number. */
enum ar_status import_session(struct import *im, uint32_t number, struct import_session **ses,
			      struct ar_err *err);
/* The link of the session with this number, to change it. */
enum ar_status import_link(struct import *im, uint32_t number, struct session_link **link,
			   struct ar_err *err);
/* Make q the next turn of the session with this number. */
enum ar_status import_turn(struct import *im, uint32_t number, struct request *q,
			   struct import_session **ses, struct ar_err *err);

/* ---- prefix blocks (prefix_blocks.c) ---- */

/* Add the blocks of a prompt from an array of ids, one for each block. */
enum ar_status import_ids(struct import *im, struct span ids, uint32_t prompt_tok,
			  struct ar_err *err);
/* The same for hash_ids of a record. */
enum ar_status import_hash_ids(struct import *im, const struct record *r, uint32_t prompt_tok,
			       struct ar_err *err);
/* Check that ids is an array with one id for each block of tok tokens, or one more.  *n: blocks. */
enum ar_status import_hash_count(struct import *im, struct span ids, uint32_t tok, uint32_t *n,
				 struct ar_err *err);
/* Convert an id into key's src; tail marks an id that is a string. */
enum ar_status import_hash_id(struct import *im, struct span id, struct chain_key *key,
			      struct ar_err *err);
/* Import a whole record: timestamp, input_length, output_length, hash_ids. */
enum ar_status import_hashed(struct import *im, const struct record *r, int64_t unit_ns,
			     struct ar_err *err);
/* Chain the first n ids of an array: *end, and *at after the first at_n of them. */
enum ar_status import_hash_chain(struct import *im, struct span ids, uint32_t n, uint64_t *end,
				 uint32_t at_n, uint64_t *at, struct ar_err *err);
/* For sniffing a record with input_length: return whether hash_ids has one id for each block of
 * block_tok tokens. */
bool import_hash_fits(const struct record *r, uint32_t block_tok);

/* Give the next request the first n blocks of request `from`, which has as many. */
enum ar_status import_same_blocks(struct import *im, size_t from, uint32_t n, struct ar_err *err);

/* Give the next request, whose prompt has tok tokens, blocks of its own after those that it has. */
enum ar_status import_own_blocks(struct import *im, uint32_t tok, struct ar_err *err);

/* Kinds of texts in a prompt, besides the two kinds of hash ids. */
enum cut_kind { CUT_OUTPUT = 1, CUT_REST, CUT_LENGTH };
/* Append n tokens of a text to the prompt and add the blocks that become full.  Equal text and kind
 * mean equal tokens. */
enum ar_status import_cut(struct import *im, struct cutter *c, uint64_t text, uint32_t kind,
			  uint32_t n, struct ar_err *err);
enum ar_status import_cut_token(struct import *im, struct cutter *c, uint64_t token,
				struct ar_err *err);
/* End a prompt: add its last, partial block. */
enum ar_status import_cut_end(struct import *im, struct cutter c, struct ar_err *err);

/* ---- rounds (rounds.c) ---- */

/* A request of a session with the times of its start and end.  Rounds come in any order. */
struct round {
	uint32_t session, type; /* type as in a request */
	uint32_t prompt_tok, output_tok;
	uint32_t cached_tok; /* of the prompt, which a cache held at the source */
	bool grows;	     /* a prompt that is not shorter than the last one begins with it */
	int64_t start_ns, end_ns;
	uint64_t line;
};

/* Keep a round until import_rounds_end(), unless it has no prompt. */
enum ar_status import_round(struct import *im, const struct round *r, struct ar_err *err);
/* Add the rounds as requests, in order of time.  One that starts before the one before it in its
 * session has ended begins a session of its own. */
enum ar_status import_rounds_end(struct import *im, struct ar_err *err);

#endif
