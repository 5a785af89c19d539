/* SPDX-License-Identifier: Apache-2.0 */
/* Files that users have and that a reader refuses: what they are, and what reads them. */
#ifndef AR_KNOWN_FILES_H
#define AR_KNOWN_FILES_H

#include "traces/importers/trace_record.h"

struct known_file {
	enum record_kind kind;
	const char *field[3]; /* all of them are in its first record; unused ones are NULL */
	const char *start;    /* its first column starts so; NULL: any */
	const char *title;    /* "a report of guidellm" */
	const char *command;  /* of this program that reads it; NULL: none */
};

/* Tell a file by its first record, of which only the names are read.  NULL: unknown. */
const struct known_file *known_file(const struct record *first);

/* Set r to the names in a JSON object, or in the first element of an array of them.  The names live
 * as long as v.  False: v is something else. */
bool known_file_names(struct record *r, const struct cJSON *v);

#endif
