/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a trace file: a row of CSV or an object of JSON, with the text of each value. */
#ifndef AR_TRACE_RECORD_H
#define AR_TRACE_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct cJSON;

struct span {
	const char *s;
	size_t n;
};

enum record_kind { RECORD_CSV, RECORD_JSON };
enum { RECORD_MAX_FIELDS = 64 };

/* A row of a CSV file with its column names, or a JSON object.  A value is the text of the file
 * without blanks around it, so that numbers keep every digit; strings in JSON keep
 * their quotes. */
struct record {
	enum record_kind kind;
	char separator; /* of a CSV file: ',', ';' or a tab */
	struct field {
		const char *name;
		struct span value;
	} field[RECORD_MAX_FIELDS];
	size_t n;
	struct cJSON *json; /* the same object, parsed; NULL for CSV, and for large records */
};

/* Split line in place.  The caller adds file and line to the messages.  csv_header makes the fields
 * that csv_row fills for each row; names point into line.  The separator is the one of which the
 * header has most. */
enum ar_status record_csv_header(struct record *r, char *line, struct ar_err *err);
enum ar_status record_csv_row(struct record *r, char *line, struct ar_err *err);
enum ar_status record_json(struct record *r, const char *line, size_t n, struct ar_err *err);
/* The same for records that are large: r->json is NULL.  Names point into line. */
enum ar_status record_text(struct record *r, char *line, size_t n, struct ar_err *err);
void record_release(struct record *r);

const struct field *record_find(const struct record *r, const char *name);
/* The same, but NULL also for a field without a value: null, or a cell that is empty or says so. */
const struct field *record_get(const struct record *r, const char *name);
/* Whether r has the field; columns of a CSV file may differ in case. */
bool record_has(const struct record *r, const char *name);
/* Whether names, ended by NULL, hold name. */
bool name_among(const char *const *names, const char *name);

/* The value at a path such as "a.b.0" of keys and of indexes into arrays.  A key of the record that
 * has dots itself comes first.  In a row of CSV the path is a column.  False: there is none. */
bool record_path(const struct record *r, const char *path, struct span *value);

/* A walk over JSON text that was read as a record.  Begin with *s at the array or object. */
const char *record_skip_blank(const char *s);
/* Go to the next element of an array, or to the value of the next member of an object, whose name
 * is set.  close: "]" or "}".  The walker moves *s over the value.  False: *s is after the end. */
bool record_step(const char **s, char close, struct span *name);
/* Move *s over a value.  Returns its text. */
struct span record_skip(const char **s);

/* Take the next element off *array, the text of a JSON array that was parsed. */
bool record_next(struct span *array, struct span *element);

/* The first 40 characters of s at most, made printable for messages. */
struct shown {
	char s[48];
};
struct shown span_show(struct span s);

#endif
