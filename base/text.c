/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/number.h"

enum { READ_BYTES = 4095 };

/* Read up to cap bytes of f; *n: bytes read. */
static enum ar_status fill_text(FILE *f, char **text, size_t cap, size_t *n, struct ar_err *err)
{
	size_t room = 0, want = READ_BYTES, got = want;

	for (*n = 0; got == want && *n < cap; *n += got) {
		if (!GROW(*text, room, *n + READ_BYTES + 1))
			return ar_nomem(err);
		want = room - 1 - *n < cap - *n ? room - 1 - *n : cap - *n;
		got = fread(*text + *n, 1, want, f);
	}
	(*text)[*n] = 0;
	return AR_OK;
}

enum ar_status text_read(char **out, const char *path, size_t max, struct ar_err *err)
{
	FILE *f = fopen(path, "r");
	char *text = NULL;
	enum ar_status st;
	size_t n;

	*out = NULL;
	if (!f)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	st = fill_text(f, &text, max + 1, &n, err);
	if (!st && ferror(f))
		st = ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	else if (!st && n > max)
		st = ar_fail(err, AR_DATA, "%s: too large, more than %zu bytes", path, max);
	fclose(f);
	if (st)
		free(text);
	else
		*out = text;
	return st;
}

int text_line(const char *text, const char *end)
{
	int line = 1;

	for (; text < end; text++)
		line += *text == '\n';
	return line;
}

/* ---- foreign text ---- */

enum { NO_UTF8 = -1 };
static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The first character of s, which is not empty, and its number of bytes.  NO_UTF8: a byte that
 * begins no character of RFC 3629. */
static int32_t first(const char *s, int *n)
{
	static const int32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int32_t c = (unsigned char)*s;
	int len = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf8 ? 4 : 0;

	*n = 1;
	if (len < 2)
		return len ? c : NO_UTF8;
	c &= 0x7f >> len;
	for (int i = 1; i < len; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return NO_UTF8;
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return NO_UTF8;
	*n = len;
	return c;
}

/* C0, DEL and C1. */
static bool is_control(int32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Characters that override the direction of writing: text around them looks like other text. */
static bool is_direction(int32_t c)
{
	return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

bool text_plain(const char *s, int *n)
{
	int32_t c = first(s, n);

	return !is_control(c) && !is_direction(c);
}

static void put_hex(const char *s, int n, FILE *f)
{
	for (int i = 0; i < n; i++)
		fprintf(f, "\\x%02x", (unsigned char)s[i]);
}

int text_put(const char *s, FILE *f)
{
	int columns = 0, n;

	for (; *s; s += n) {
		bool plain = text_plain(s, &n);

		columns += plain ? 1 : 4 * n;
		if (f && plain)
			fwrite(s, 1, (size_t)n, f);
		else if (f)
			put_hex(s, n, f);
	}
	return columns;
}

/* Characters of ASCII at the head of s that JSON takes as they are. */
static int count_plain(const char *s, bool inside)
{
	int n = 0;

	while (s[n] >= 0x20 && s[n] < 0x7f && !(inside && (s[n] == '"' || s[n] == '\\')))
		n++;
	return n;
}

/* inside: s is inside of a JSON string, else it is JSON itself. */
static void put_json(const char *s, size_t len, bool inside, FILE *f)
{
	static const char control[] = "\b\f\n\r\t", letter[] = "bfnrt";
	const char *known, *end = s + len;
	int n;

	for (; s < end; s += n) {
		int32_t c;

		n = count_plain(s, inside);
		n = n < end - s ? n : (int)(end - s);
		fwrite(s, 1, (size_t)n, f);
		if (n)
			continue;
		c = first(s, &n);
		known = c > 0 && c < 0x20 ? strchr(control, c) : NULL;
		if (c == NO_UTF8)
			fputs(replacement, f);
		else if (known)
			fprintf(f, "\\%c", letter[known - control]);
		else if (is_control(c))
			fprintf(f, "\\u%04x", (unsigned)c);
		else
			fprintf(f, "%s%.*s", inside && (c == '"' || c == '\\') ? "\\" : "", n, s);
	}
}

void text_put_json(const char *s, FILE *f)
{
	text_put_json_n(s, strlen(s), f);
}

void text_put_json_n(const char *s, size_t n, FILE *f)
{
	putc('"', f);
	put_json(s, n, true, f);
	putc('"', f);
}

void text_put_json_value(const char *json, FILE *f)
{
	const char *from = json, *s;
	bool inside = false; /* of a string */

	for (s = json; *s; s++) {
		if (inside && *s == '\\' && s[1]) {
			s++;
		} else if (*s == '"') {
			inside = !inside;
		} else if (!inside && (!strncmp(s, "Inf", 3) || !strncmp(s, "-Inf", 4))) {
			put_json(from, (size_t)(s - from), false, f);
			fputs("null", f);
			s += *s == '-' ? 3 : 2;
			from = s + 1;
		}
	}
	put_json(from, (size_t)(s - from), false, f);
}

void text_put_xml(const char *s, FILE *f)
{
	int n;

	for (; *s; s += n) {
		int32_t c = first(s, &n);
		bool space = c == '\t' || c == '\n' || c == '\r';

		if ((c < 0x20 && !space) || c == 0xfffe || c == 0xffff)
			fputs(replacement, f);
		else if (c == '<' || c == '>' || c == '&')
			fputs(c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;", f);
		else if (is_control(c) || c == '"' || c == '\'')
			fprintf(f, "&#%d;", (int)c);
		else
			fwrite(s, 1, (size_t)n, f);
	}
}

void text_put_csv(const char *s, FILE *f)
{
	text_put_csv_n(s, strlen(s), f);
}

void text_put_csv_n(const char *s, size_t len, FILE *f)
{
	const char *end = s + len;
	int n;
	bool formula = *s && strchr("=+-@\t\r", *s) && s[1];
	bool quote = s[strcspn(s, ",\"\r\n")] || !*s;
	double x;

	if (quote)
		putc('"', f);
	if (formula && !num_real(s, &x))
		putc('\'', f);
	for (; s < end; s += n) {
		bool space = *s == '\t' || *s == '\r' || *s == '\n';

		if (*s == '"')
			putc('"', f);
		if (is_control(first(s, &n)) && !space)
			put_hex(s, n, f);
		else
			fwrite(s, 1, (size_t)n, f);
	}
	if (quote)
		putc('"', f);
}

char *text_utf8(const char *s)
{
	char *copy = malloc(strlen(s) * strlen(replacement) + 1), *to = copy;
	int n;

	for (; copy && *s; s += n) {
		bool good = first(s, &n) != NO_UTF8;

		to = good ? mempcpy(to, s, (size_t)n) : stpcpy(to, replacement);
	}
	if (copy)
		*to = 0;
	return copy;
}
