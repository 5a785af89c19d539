/* SPDX-License-Identifier: Apache-2.0 */
/* Writers of traces in the formats of other programs.  One row each. */
#ifndef AR_TRACE_WRITERS_H
#define AR_TRACE_WRITERS_H

#include <stdio.h>

#include "traces/trace.h"

/* Parts of a request that not all formats have. */
enum { KEEPS_BLOCKS = 1, KEEPS_SESSIONS = 2, KEEPS_TYPES = 4, KEEPS_THINK = 8 };

struct trace_writing; /* what a writer knows of the requests before */

struct trace_writer {
	const char *name;			       /* "mooncake", the importer's name */
	unsigned keeps;				       /* KEEPS_... */
	void (*begin)(const struct trace *t, FILE *f); /* write the header; NULL: none */
	void (*request)(struct trace_writing *w, size_t i, FILE *f); /* write request i */
};

extern const struct trace_writer trace_writers[]; /* ends with name NULL */

/* NULL: there is none of this name. */
const struct trace_writer *trace_writer_find(const char *name);

/* Write all requests of t.  A warning counts what the format cannot hold.  AR_IO, AR_NOMEM. */
enum ar_status trace_write_as(const struct trace_writer *w, const struct trace *t, FILE *f,
			      struct ar_err *err);

#endif
