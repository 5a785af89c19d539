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
#include "traces/importers/record.h"
#include "traces/intern.h"
#include "traces/trace.h"

/* ---- the engine (import.c) ---- */

enum import_warning {
	WARN_BLANK, WARN_CASE, WARN_COLUMN, WARN_KEY, WARN_FLOAT, WARN_ORDER, WARN_NO_PROMPT,
	WARN_NO_OUTPUT, WARN_EXTRA_BLOCK, WARN_NO_BLOCKS, WARN_TOTAL, WARN_PARENT, WARN_TURN,
	WARN_EARLIEST, WARN_DELTA, WARN_NO_TURNS, WARN_RESTART, WARN_COUNT
};

/* Where the tokens of a prompt that is given in texts stand: after the block prev, and fill tokens
 * into the next. */
struct cutter {
	uint64_t prev, node;
	uint32_t fill;
};
#define CUTTER_START (struct cutter){ CHAIN_START, CHAIN_START, 0 }

/* A session after its last turn, for the importer. */
struct import_session {
	uint32_t turns;
	int64_t start_ns, end_ns;	/* of that turn, in the time of the file */
	uint32_t output_tok;		/* of that turn */
	uint64_t tok;			/* of its prompt and its output */
	size_t block;			/* first block of its prompt ... */
	uint32_t n_full;		/* ... and how many of them are full */
	struct cutter end;		/* of its prompt */
	bool blind;			/* some turn had no prefix identity */
};

struct import {
	struct trace *t;		/* what is built; arrivals in any base until the end */
	const struct import_args *args;
	const char *path;
	uint64_t line;
	size_t cap_req, cap_block;
	int64_t first_ns, last_ns, max_ns;	/* arrivals so far */
	int64_t begin_ns;		/* of the recording, where the clock was restarted */
	int64_t shift_ns;		/* added to arrivals, after a restart of the clock */
	bool unsorted;
	struct chain chain;		/* block numbers */
	struct chain seen;		/* free for the importer, or of import_cut */
	struct names session, type;
	struct import_session *ses;	/* by number of the session */
	size_t cap_ses;
	struct names id;		/* block ids that are strings */
	enum date_zone zone;
	uint64_t promised;		/* requests, by the header */
	struct { uint64_t line, n; } warn[WARN_COUNT];
};

/* Options that only some formats have a use for. */
enum { USES_CONTEXT = 1, USES_IMAGES = 2, USES_COMPONENTS = 4 };

struct importer {
	const char *name;	/* "azure" */
	const char *title;
	enum record_kind kind;
	const char *const *need;	/* fields of every record, ended by NULL */
	const char *const *may;		/* others that it knows, or NULL when it checks itself */
	unsigned uses;			/* USES_... */
	uint32_t block_tok;	/* usual tokens of a block, 0: makes none, or says itself */
	/* Does a record that has all of need's fields look like this format?  NULL: yes. */
	bool (*sniff)(const struct record *first);
	enum ar_status (*start)(struct import *im, struct ar_err *err);	/* may be NULL */
	enum ar_status (*record)(struct import *im, const struct record *r, struct ar_err *err);
	enum ar_status (*finish)(struct import *im, struct ar_err *err);	/* may be NULL */
};

#define IMPORTER(name) extern const struct importer importer_##name;
#include "traces/importers/importer_list.h"
#undef IMPORTER

extern const struct importer *const importers[];	/* ends with NULL */

/* The importer that format names, or when it is NULL the one that the first record fits. */
enum ar_status importer_pick(const struct importer **out, const struct record *first,
			     const char *format, struct ar_err *err);

/* All requests of the file, sorted. */
enum ar_status import_file(struct trace **out, const char *path, const struct import_args *a,
			   struct ar_err *err);

/* For importers.  Failures name the place. */
enum ar_status import_fail(const struct import *im, struct ar_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void import_warn(struct import *im, enum import_warning w);

/* An integer from 0 to 2^31 - 1. */
enum ar_status import_count(struct import *im, const struct record *r, const char *name,
			    uint32_t *out, struct ar_err *err);
/* The token counts of a request. */
enum ar_status import_lengths(struct import *im, const struct record *r, const char *prompt,
			      const char *output, struct request *q, struct ar_err *err);
/* The text of a field, a string where the record is JSON, as a number of in. */
enum ar_status import_name(struct import *im, const struct record *r, const char *name,
			   struct names *in, uint32_t *number, struct ar_err *err);
/* A decimal number of units of unit_ns, not negative. */
enum ar_status import_time(struct import *im, const struct record *r, const char *name,
			   int64_t unit_ns, int64_t *ns, struct ar_err *err);
enum ar_status import_time_text(struct import *im, const char *name, struct span text,
				int64_t unit_ns, int64_t *ns, struct ar_err *err);

/* Whether the request was not served (no prompt or no output); counted when so. */
bool import_unserved(struct import *im, const struct request *q);
/* Add a prefix block to the request that comes next. */
enum ar_status import_block(struct import *im, uint64_t id, struct ar_err *err);
/* Add a request that takes the blocks added since the last one. */
enum ar_status import_add(struct import *im, struct request *q, struct ar_err *err);
/* The same for a turn that has no recorded arrival and stands at the earliest that can be. */
enum ar_status import_add_earliest(struct import *im, struct request *q, struct ar_err *err);
/* Make q the next turn of the session with this number. */
enum ar_status import_turn(struct import *im, uint32_t number, struct request *q,
			   struct import_session **ses, struct ar_err *err);

/* ---- prefix blocks (blocks.c) ---- */

/* The blocks of a prompt by its hash_ids, one for each block. */
enum ar_status import_hash_ids(struct import *im, const struct record *r, uint32_t prompt_tok,
			       struct ar_err *err);
/* Whether ids is an array with one id for each block of tok tokens, or one more; *n blocks. */
enum ar_status import_hash_count(struct import *im, struct span ids, uint32_t tok, uint32_t *n,
				 struct ar_err *err);
/* An id as a number and what tells a string: key's src and tail. */
enum ar_status import_hash_id(struct import *im, struct span id, struct chain_key *key,
			      struct ar_err *err);
/* A whole record: timestamp, input_length, output_length, hash_ids. */
enum ar_status import_hashed(struct import *im, const struct record *r, int64_t unit_ns,
			     struct ar_err *err);
/* For sniffing, with input_length there: as many hash_ids as blocks of block_tok tokens. */
bool import_hash_fits(const struct record *r, uint32_t block_tok);

/* What a text of a prompt is, beside the two kinds of hash ids. */
enum cut_kind { CUT_OUTPUT = 1, CUT_REST, CUT_LENGTH };
/* n tokens of a text that is the same wherever text and kind are; full blocks are added. */
enum ar_status import_cut(struct import *im, struct cutter *c, uint64_t text, uint32_t kind,
			  uint32_t n, struct ar_err *err);
enum ar_status import_cut_token(struct import *im, struct cutter *c, uint64_t token,
				struct ar_err *err);
/* The end of a prompt: what is left is a block that is not full. */
enum ar_status import_cut_end(struct import *im, struct cutter c, struct ar_err *err);

#endif
