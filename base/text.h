/* SPDX-License-Identifier: Apache-2.0 */
/* Reading whole text files; writing foreign text: names and contents of files, which may hold
 * control characters or bytes that are no UTF-8. */
#ifndef AR_TEXT_H
#define AR_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Read the whole file into *out, NUL-terminated; the caller owns it.  AR_DATA: the file cannot be
 * read or has more than max bytes. */
enum ar_status text_read(char **out, const char *path, size_t max, struct ar_err *err);

/* Return the line number of end in text, from 1. */
int text_line(const char *text, const char *end);

/* Whether a terminal only shows the first character of s, which is not empty.  *n: its bytes.
 * False for control characters, bytes that are no UTF-8, and characters that override the direction
 * of writing. */
bool text_plain(const char *s, int *n);

/* Write s for people.  Bytes of characters that are not plain become \xNN.  f NULL: write nothing.
 * Returns the columns on a terminal. */
int text_put(const char *s, FILE *f);

/* Write s as JSON in quotes, as content of an XML element or attribute, as a field of CSV (RFC
 * 4180).  In JSON and XML U+FFFD replaces bytes that are no UTF-8, and characters that XML forbids.
 * In CSV an apostrophe precedes text that spreadsheets would run as a formula: it begins with =, +,
 * -, @, a tab or a carriage return, and is no number.  There bytes of control characters, but for
 * tabs and ends of lines, and bytes that are no UTF-8 become \xNN.  _n: s has n bytes, with a NUL
 * behind them; some may be NUL. */
void text_put_json(const char *s, FILE *f);
void text_put_json_n(const char *s, size_t n, FILE *f);
void text_put_xml(const char *s, FILE *f);
void text_put_csv(const char *s, FILE *f);
void text_put_csv_n(const char *s, size_t n, FILE *f);

/* Write a JSON value that cJSON or SQLite has printed on one line.  In its strings control
 * characters become \u00NN, and U+FFFD replaces bytes that are no UTF-8: cJSON leaves both as they
 * are.  SQLite's Inf and -Inf become null. */
void text_put_json_value(const char *json, FILE *f);

/* Return s with U+FFFD in place of bytes that are no UTF-8; the caller owns it.  NULL: no
 * memory. */
char *text_utf8(const char *s);

#ifdef __cplusplus
}
#endif
#endif
