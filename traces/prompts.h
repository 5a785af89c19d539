/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts in token ids, with or without known answers: JSON lines, see attnreplay-trace(5).
 *
 *   {"prompt":[ids], "answer":[ids], "task":"vt", "length":4096, "ok":true}
 *
 * All but the prompt may be left out, or the line be the list of the prompt's ids alone.
 * "answer" may be a list of answers: the first one counts.
 */
#ifndef AR_PROMPTS_H
#define AR_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct cJSON;

struct prompt {
	uint64_t line; /* in the file */
	char *task;    /* NULL: not given */
	int64_t length;
	int32_t *prompt, *answer;    /* in one allocation; answer NULL: not given */
	uint32_t n_prompt, n_answer; /* at least 1 where given */
	int expected;		     /* "ok": 1, 0; -1: not given */
};

struct prompts {
	struct prompt *v; /* [n] by line, n > 0 */
	size_t n, cap;
};

/* Read a file, "-" for standard input, compressed or not.  AR_DATA, with file and line: a record
 * is no such object, or an id no number from 0 to 2^31 - 1; the file has no prompt. */
enum ar_status prompts_read(struct prompts *p, const char *path, struct ar_err *err);
/* max_memory: bytes that the prompts may take, 0: half of the machine's.  AR_DATA: they take
 * more. */
enum ar_status prompts_read_limited(struct prompts *p, const char *path, int64_t max_memory,
				    struct ar_err *err);
void prompts_release(struct prompts *p); /* may be called twice */

/* The prompt of this line; NULL: the line has none. */
const struct prompt *prompts_at(const struct prompts *p, uint64_t line);

/* Read one record, an object or a list.  The caller releases *p also after a failure, and adds
 * file and line. */
enum ar_status prompt_read(struct prompt *p, const struct cJSON *record, struct ar_err *err);
void prompt_release(struct prompt *p);

#endif
