/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables.  One const array describes the options of a command or of a member of a family
 * (policy, backend, selector ...).  It gives name, type, default, range and help.  All of these
 * read it: the command line parser, job files, --method parameters, --help, the man pages, the
 * database's record of a run. */
#ifndef AR_OPT_H
#define AR_OPT_H

#include <stdio.h>

#include "base/opt_table.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

/* A table and the struct it fills.  Arrays of groups end with opts == NULL.  At
 * most 64 options a table. */
struct opt_group {
	const char *title;	/* "Scheduler (vllm-0.16)" */
	const struct opt *opts; /* ends with name == NULL */
	void *base;
	uint64_t given;	   /* bit i: option i was set by the user */
	uint64_t from_job; /* ... by a job file */
	uint64_t weak;	   /* set by opt_set_weak() */
};

/* Set every option to its default.  The structs must be zeroed before. */
enum ar_status opt_init(struct opt_group *g, struct ar_err *err);
void opt_release(struct opt_group *g);

/* GNU style: --name VALUE, --name=VALUE, -x VALUE, --no-name, "--" ends the options; options and
 * operands in any order.  -q and -v, which every command takes, set log_level.  The operands are
 * left in argv[0 .. *argc).  The command line wins over a job file wherever the file stands. */
enum ar_status opt_parse(struct opt_group *g, int *argc, char **argv, struct ar_err *err);

/* A job file: lines "name = value", "name" or "no-name", '#' starts a comment.  A name that is no
 * option is an error with its line. */
enum ar_status opt_load(struct opt_group *g, const char *path, struct ar_err *err);

/* Read a job file: call put with name and value of each line, value NULL: none.  put may change
 * both texts.  Its message gets file and line in front. */
typedef enum ar_status opt_line_fn(void *ctx, char *name, char *value, unsigned line,
				   struct ar_err *err);
enum ar_status opt_read_lines(const char *path, opt_line_fn *put, void *ctx, struct ar_err *err);

/* The option of this name and its group; NULL: AR_USAGE in *err. */
const struct opt *opt_find(struct opt_group **g, const char *name, struct ar_err *err);

/* s without the white space around it; s is changed. */
char *opt_trim(char *s);

enum ar_status opt_set(struct opt_group *g, const char *name, const char *value,
		       struct ar_err *err);
/* Replace the values of list `name` by value[0..n).  n 0: the list counts as not given. */
enum ar_status opt_set_list(struct opt_group *g, const char *name, char *const *value, size_t n,
			    struct ar_err *err);
/* Set options from "name=value,name=value", the form of a group inside of a value. */
enum ar_status opt_set_all(struct opt_group *g, const char *text, struct ar_err *err);
/* Set an option that was not given, and do not count it as given.  A name that is no option, or an
 * option that was given, is left alone. */
enum ar_status opt_set_default(struct opt_group *g, const char *name, const char *value,
			       struct ar_err *err);
/* Set an option, unless it was given.  It counts as given for opt_given(), but not for
 * opt_given_of(): nobody asked for an effect. */
enum ar_status opt_set_weak(struct opt_group *g, const char *name, const char *value,
			    struct ar_err *err);
/* Get the value of an integer, or of a real.  False: there is no such option. */
bool opt_get_int(const struct opt_group *g, const char *name, int64_t *x);
bool opt_get_real(const struct opt_group *g, const char *name, double *x);
bool opt_given(const struct opt_group *g, const char *name);
/* ... and not by opt_set_weak(). */
bool opt_asked(const struct opt_group *g, const char *name);
/* From now on an option that was given counts as set by opt_set_weak(). */
void opt_weaken(struct opt_group *g, const char *name);
/* The first option that was given and has one of the bits in its scope; NULL: none. */
const struct opt *opt_given_of(const struct opt_group *g, unsigned scope);

void opt_help(const struct opt_group *g, FILE *f); /* for --help */
void opt_mdoc(const struct opt_group *g, FILE *f); /* for man pages */

/* Add every option that has a value to the JSON object, with its type.  False: no memory. */
bool opt_json(const struct opt_group *g, struct cJSON *object);

/* Set options from an object of opt_json(), if they were not given and have another value there.
 * They count as given then; those that something else may set as opt_set_weak() says.  AR_DATA: a
 * name that is no option, or a value of no option.  AR_USAGE:
 * a value that the option does not take. */
enum ar_status opt_set_json(struct opt_group *g, const struct cJSON *object, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
