/* SPDX-License-Identifier: Apache-2.0 */
/* Files of prompts, one on each line: a JSON list of token ids, or an object that has it as "prompt".
 * Empty lines do not count; the file may be compressed. */
#ifndef AR_PROMPTS_H
#define AR_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct prompts {
	struct prompt {
		int32_t *id; /* [n] token ids, at least one */
		int n;
	} * v;
	size_t n;
};

/* Read all prompts of a file.  AR_DATA names file and line, or there is no prompt.  Release *p even
 * after a failure. */
enum ar_status prompts_read(struct prompts *p, const char *path, struct ar_err *err);
void prompts_release(struct prompts *p);

/* Read prompt number index, from 0.  The caller frees *id.  AR_DATA names file and line. */
enum ar_status prompts_pick(int32_t **id, int *n, const char *path, int64_t index,
			    struct ar_err *err);

#endif
