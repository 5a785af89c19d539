/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --json: the output of a command as JSON. */
#ifndef AR_JSON_FILE_H
#define AR_JSON_FILE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/binfile.h"

/* One help text for the option in all commands. */
#define JSON_FILE_HELP "write the figures to FILE as JSON, too; -: to standard output, alone"

/* Return whether path is -: then the command prints no text.  path NULL: no. */
bool json_file_alone(const char *path);

/* Open path, see outfile_open(); - is standard output.  NULL: do nothing. */
enum ar_status json_file_open(struct outfile *f, const char *path, struct ar_err *err);

/* Write o, one document, and a line feed to f, which is open, and commit it.  o is owned here, even
 * after a failure.  NULL: there was no memory to make it.  AR_IO, naming the file: a write
 * failed. */
enum ar_status json_file_end(struct outfile *f, cJSON *o, struct ar_err *err);

/* Write o, one document, to path and a line feed.  o is owned here, even after a failure.  NULL:
 * there was no memory to make it.  AR_IO: a write failed; the message names the file. */
enum ar_status json_file_write(const char *path, cJSON *o, struct ar_err *err);

#endif
