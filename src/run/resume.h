/* SPDX-License-Identifier: Apache-2.0 */
/* The command that 'attnreplay run --resume' goes on with, as its database has it. */
#ifndef AR_RUN_RESUME_H
#define AR_RUN_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct run;

/* Of run `run`, which is run i of the command. */
struct resumed_key {
	int64_t run;
	size_t i;
	char *key;     /* of run_key(); NULL: none */
	char *version; /* AR_REVISION of the program */
	char *device;  /* name of the GPU, or NULL */
};

struct resumed {
	char *db;
	int64_t run; /* the command's first, for messages */
	int64_t command_utc_ns;
	char *options;	    /* JSON object */
	char *backend;	    /* the one that ran, not auto */
	char *trace_sha256; /* of n_requests requests */
	int64_t n_requests;
	char *model_json;	 /* NULL: no model */
	int64_t num_blocks;	 /* the pool of the runs so far */
	size_t n_method;	 /* at least 1; a command without kernels has one without a name */
	size_t n_run;		 /* n_method * --repeats */
	bool *done;		 /* [n_run]: done, in the order of the command */
	struct resumed_key *key; /* [n_key], of its runs so far */
	size_t n_key, cap_key;
	char **capture_sha256; /* [n_capture]; "": its file has no checksum */
	size_t n_capture, cap_capture;
};

/* where: "DB:RUN", the command of that run, or "DB", the latest command with a method that is not
 * done.  AR_USAGE: there is no such run, none is left to run, one is running, or it has no stored
 * command.  AR_DATA: the database or the run cannot be used. */
enum ar_status resume_open(struct resumed **out, const char *where, struct ar_err *err);
void resume_close(struct resumed *r); /* NULL is fine */

/* resume_check.c: check that trace, model, captures and other inputs are as when the command ran.
 * AR_DATA: one has changed; the message names its file. */
enum ar_status resume_check(struct run *r, struct ar_err *err);

#endif
