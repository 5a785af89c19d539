/* SPDX-License-Identifier: Apache-2.0 */
/* A row of an option table, see opt.h. */
#ifndef AR_OPT_TABLE_H
#define AR_OPT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Type of the option, and of its value at base + off. */
enum opt_type {
	OPT_FLAG = 1, /* bool; --x, or x=no|yes or 0|1 */
	OPT_INT,      /* int64_t; 64, 64k (1000), 64K (1024) */
	OPT_REAL,     /* double */
	OPT_TIME,     /* int64_t, nanoseconds; 6ms, 1.5s */
	OPT_STR,      /* char *, owned, NULL when unset and without default */
	OPT_LIST,     /* struct opt_list, owned; repeat the option to add */
	OPT_ENUM,     /* int, index into choice */
	OPT_JOB,      /* no storage: the value names a job file */
};

struct opt_list {
	char **v;
	size_t n, cap;
};

struct opt {
	const char *name; /* "max-num-seqs" */
	enum opt_type type;
	size_t off;
	const char *arg;	   /* "N", "FILE"; NULL for a flag */
	const char *def;	   /* as the user would write it; NULL: none */
	double min, max;	   /* of INT, REAL, TIME; both 0: no range */
	const char *const *choice; /* of ENUM; of STR: names beside files; ended by NULL */
	const char *help;	   /* one sentence, no full stop */
	const char *also; /* names that engines or benchmarks have for it, "a,b": the message
				 * about an unknown option names this one; NULL: none */
	/* What sets the value where it was not given, after all is parsed: "the engine's".  def
	 * holds until then, and where nothing sets it.  A flag then has --no-NAME beside it.
	 * NULL: def is the default. */
	const char *own;
	const char *also_no; /* as also, for --no-NAME */
	char letter;	     /* short option, or 0 */
	unsigned scope;	     /* bits of the command for which it has an effect; 0: all */
	bool may_differ;     /* records that differ in it can be compared: it names the subject,
					 * as a method does, or sets how much is stored */
	bool record_only;    /* it says what to store or show: it shapes no result */

	/* Called with each value that is set, from wherever; NULL: nothing to do. */
	enum ar_status (*use)(const char *value, struct ar_err *err);
};

#endif
