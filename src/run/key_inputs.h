/* SPDX-License-Identifier: Apache-2.0 */
/* What the value of an option stands for in keys: the content of a file, not its name. */
#ifndef AR_RUN_KEY_INPUTS_H
#define AR_RUN_KEY_INPUTS_H

#include <stddef.h>

#include "base/status.h"

/* What options that name files stand for.  A file is read once.  All 0: none was read. */
struct run_inputs {
	struct run_input {
		char *name, *value, *text; /* option, its value, what it stands for */
	} * v;
	size_t n;
};
void run_inputs_release(struct run_inputs *in);

/* *text: what the value of the option stands for, owned by in; the value itself where it names no
 * file.  AR_DATA: the file cannot be read. */
enum ar_status run_input_text(struct run_inputs *in, const char *name, const char *value,
			      const char **text, struct ar_err *err);

/* A text that never repeats; the caller frees it. */
enum ar_status run_random_text(char **text, struct ar_err *err);

#endif
