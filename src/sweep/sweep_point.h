/* SPDX-License-Identifier: Apache-2.0 */
/* A point of a sweep: its command, its key, and whether its database is there. */
#ifndef AR_SWEEP_POINT_H
#define AR_SWEEP_POINT_H

#include <stdio.h>

#include "src/run/key.h"
#include "src/sweep/sweep_file.h"

struct sweep_point {
	size_t number;
	struct texts args;    /* arguments of 'run' */
	struct run_options o; /* as parsed from them */
	struct texts method;  /* of its runs; a run without a method has "" */
	char key[RUN_KEY_SIZE];
};

/* Inputs that all points share. */
struct sweep_base {
	struct sweep file;
	struct run_options o;	  /* its option tables check the file */
	struct key_inputs inputs; /* read for keys */
	const char *version;	  /* AR_REVISION */
};

enum ar_status sweep_base_open(struct sweep_base *b, const char *path, const char *version,
			       struct ar_err *err);
void sweep_base_release(struct sweep_base *b);

/* Parse and check the options of the point, and make its key: the hash of the keys of its runs.
 * Release *p even after a failure. */
enum ar_status sweep_point_open(struct sweep_point *p, struct sweep_base *b, size_t number,
				struct ar_err *err);
void sweep_point_release(struct sweep_point *p);

/* The database at path holds the finished runs of the point, and no others. */
bool sweep_point_done(struct sweep_point *p, struct sweep_base *b, const char *path);

/* Write the command line of the point, as a shell takes it, and a line feed. */
void sweep_point_show(const struct sweep_point *p, FILE *f);

#endif
