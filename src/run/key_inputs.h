/* SPDX-License-Identifier: Apache-2.0 */
/* The text that stands for the value of an option in keys: of a file its content, not its name. */
#ifndef AR_RUN_KEY_INPUTS_H
#define AR_RUN_KEY_INPUTS_H

#include <stddef.h>

#include "base/status.h"

/* The texts of options that name files.  A file is read once.  All 0: none was read. */
struct key_inputs {
	struct key_input {
		char *name, *value, *text; /* option, its value, the text for keys */
	} * v;
	size_t n, cap;
};
void key_inputs_release(struct key_inputs *in);

/* *text: the text for keys, owned by in; the value itself if it names no file.  AR_DATA: the file
 * cannot be read. */
enum ar_status key_input_text(struct key_inputs *in, const char *name, const char *value,
			      const char **text, struct ar_err *err);

/* A text that never repeats; the caller frees it. */
enum ar_status key_random_text(char **text, struct ar_err *err);

#endif
