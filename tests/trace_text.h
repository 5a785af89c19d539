/* SPDX-License-Identifier: Apache-2.0 */
/* Traces from text in a test: the text is written to a file in a temporary folder, and read. */
#ifndef AR_TRACE_TEXT_H
#define AR_TRACE_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/algebra/summary.h"
#include "traces/trace.h"

/* Headers of CSV files. */
#define AZ "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define LMM "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
#define BU1 "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
#define BU3 \
	"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens," \
	"Log Type\n"
#define SP \
	"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size," \
	"token_size\n"
#define VI "arrived_at,num_prefill_tokens,num_decode_tokens\n"

/* Three turns of a dialogue: real lines of a Mooncake trace. */
static const char dialogue[] =
	"{\"timestamp\": 0, \"input_length\": 2290, \"output_length\": 316, \"hash_ids\": [0, 42, "
	"43, 44, 45]}\n"
	"{\"timestamp\": 545999, \"input_length\": 2615, \"output_length\": 451, \"hash_ids\": "
	"[0, 42, 43, 44, 31961, 31962]}\n"
	"{\"timestamp\": 642000, \"input_length\": 3082, \"output_length\": 239, \"hash_ids\": "
	"[0, 42, 43, 44, 31961, 37499, 37500]}\n";

static char text_dir[] = "/tmp/t-trace-XXXXXX";
static char path[64];
static const struct trace_args whole = { .time_scale = 1 };

static inline void put(const void *data, size_t n)
{
	file_write(path, data, n);
}

static inline struct trace *read_with(const char *text, const struct trace_args *a,
				      struct ar_err *err)
{
	struct trace *t;

	*err = (struct ar_err){ 0 };
	put(text, strlen(text));
	if (trace_read(&t, path, a, err) && t)
		bail_out("a trace in spite of an error");
	return t;
}

static inline struct trace *read_text(const char *text)
{
	struct ar_err err;
	struct trace *t = read_with(text, &whole, &err);

	if (!t)
		diag("%s", err.msg);
	return t;
}

/* The canonical form; the caller frees it. */
static inline char *canonical(const struct trace *t)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	enum ar_status st = trace_write(t, f, NULL);

	fclose(f);
	if (st)
		bail_out("trace_write failed");
	return text;
}

/* Each allocation fails in turn. */
static inline void survive(const void *data, size_t size, const struct trace_args *a,
			   const char *what)
{
	long n = 0, bad = 0;
	struct ar_err err;
	struct trace *t;
	struct summary s;

	put(data, size);
	for (long k = 0;; k++, n++) {
		enum ar_status st;
		bool fired;

		fault_arm(k);
		st = trace_read(&t, path, a, &err);
		if (!st)
			st = trace_summarize(&s, t, &err);
		fired = fault_disarm();
		trace_free(t);
		if (!fired)
			break;
		bad += st != AR_NOMEM;
	}
	ok(n > 3 && !bad, "%s: each of %ld allocations fails cleanly", what, n);
}

/* The requests of the canonical form are want; the header is left out. */
static inline void becomes(const char *text, const struct trace_args *a, const char *format,
			   const char *want, const char *what)
{
	struct ar_err err;
	struct trace *t = read_with(text, a, &err);
	char *got = t ? canonical(t) : NULL;

	if (!t)
		diag("%s", err.msg);
	is_str(t ? t->format : "", format, "%s: found by content", what);
	is_str(got ? strchr(got, '\n') + 1 : "", want, "%s", what);
	free(got);
	trace_free(t);
}

/* Reading fails with this message, after the path where the message has one. */
static inline void refused(const char *text, const struct trace_args *a, enum ar_status st,
			   const char *message, const char *what)
{
	struct ar_err err;
	struct trace *t = read_with(text, a, &err);
	const char *msg = err.msg;

	if (!strncmp(msg, path, strlen(path)))
		msg += strlen(path);
	is_int(t ? AR_OK : err.status, st, "%s", what);
	is_str(t ? "" : msg, message, "%s: the message", what);
	trace_free(t);
}

static inline void text_begin(void)
{
	log_level = LOG_ERROR;
	if (!mkdtemp(text_dir))
		bail_out("no temporary folder");
	snprintf(path, sizeof path, "%s/trace", text_dir);
}

static inline void text_end(void)
{
	unlink(path);
	rmdir(text_dir);
}

#endif
