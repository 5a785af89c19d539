/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_stage.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A database of one table has two pages: the header with the schema, and the table's root.  Here
 * the root is a leaf: its header, the offsets of its cells, and the cells.  Cells fill the page
 * from its end downwards. */
enum {
	PAGE_BYTES = 65536,
	CHANGE_COUNTER = 24, /* when it changes, a reader drops its cached pages */
	LEAF = 0x0d,
	LEAF_HEADER = 8,
	HEAD_MAX = 127, /* of a record's header, whose length takes one byte */
	BODY_MAX = 512,
	CELL_MAX = 9 + 9 + HEAD_MAX + BODY_MAX,
};

struct stage {
	const struct table *table;
	sqlite3_stmt *copy;
	unsigned char *image; /* owned by the connection */
	int n, begin;	      /* number of cells; offset of the lowest in the page */
};

static void put16(unsigned char *p, int v)
{
	p[0] = (unsigned char)(v >> 8);
	p[1] = (unsigned char)v;
}

/* SQLite varint: groups of 7 bits, the highest first; bit 7 marks all but the last.  v < 2^56. */
static unsigned char *put_varint(unsigned char *p, uint64_t v)
{
	int more = v ? (63 - __builtin_clzll(v)) / 7 : 0;

	for (; more; more--)
		*p++ = (unsigned char)(v >> 7 * more | 0x80);
	*p++ = v & 0x7f;
	return p;
}

/* Append the n low bytes of v, the highest first.  p must have room for 8. */
static unsigned char *put_bytes(unsigned char *p, uint64_t v, int n)
{
	v = htobe64(v << (64 - 8 * n));
	memcpy(p, &v, sizeof v);
	return p + n;
}

/* Append an integer, a double or a text: its type to a record's head, its bytes to the body. */
static void put_int(unsigned char **head, unsigned char **body, int64_t v)
{
	static const unsigned char bytes[] = { 1, 1, 2, 3, 4, 6, 6, 8, 8 };
	static const unsigned char type[] = { 1, 1, 2, 3, 4, 5, 5, 6, 6 };
	unsigned n;

	if (v == 0 || v == 1) {
		*(*head)++ = (unsigned char)(8 + v);
		return;
	}
	n = (72 - (unsigned)__builtin_clzll((uint64_t)(v ^ v >> 63) | 1)) / 8;
	*(*head)++ = type[n];
	*body = put_bytes(*body, (uint64_t)v, bytes[n]);
}

static void put_real(unsigned char **head, unsigned char **body, double v)
{
	uint64_t bits;

	if (isnan(v)) {
		*(*head)++ = 0;
		return;
	}
	memcpy(&bits, &v, sizeof bits);
	*(*head)++ = 7;
	*body = put_bytes(*body, bits, 8);
}

static void put_text(unsigned char **head, unsigned char **body, const char *v)
{
	size_t len;

	if (!v) {
		*(*head)++ = 0;
		return;
	}
	len = strlen(v);
	*head = put_varint(*head, 13 + 2 * len);
	memcpy(*body, v, len);
	*body += len;
}

static void put_column(unsigned char **head, unsigned char **body, const struct column *c,
		       const char *at)
{
	if (c->type == COLUMN_INTEGER && (c->null == NOT_NULL || *(const int64_t *)at >= 0))
		put_int(head, body, *(const int64_t *)at);
	else if (c->type == COLUMN_INTEGER)
		*(*head)++ = 0;
	else if (c->type == COLUMN_TEXT)
		put_text(head, body, *(const char *const *)at);
	else
		put_real(head, body, *(const double *)at);
}

bool stage_full(const struct stage *g)
{
	return g->begin - LEAF_HEADER - 2 * g->n < 2 + CELL_MAX;
}

void stage_put(struct stage *g, const void *row)
{
	const struct table *t = g->table;
	unsigned char *page = g->image + PAGE_BYTES, lead[18], head[HEAD_MAX], body[BODY_MAX + 8];
	unsigned char *h = head + 1, *b = body, *l = lead, *to;

	assert(!stage_full(g));
	for (int i = 0; i < t->n_col; i++)
		put_column(&h, &b, &t->col[i], (const char *)row + t->col[i].off);
	assert(h - head <= HEAD_MAX && b - body <= BODY_MAX);
	head[0] = (unsigned char)(h - head);
	l = put_varint(l, (uint64_t)((h - head) + (b - body)));
	l = put_varint(l, (uint64_t)g->n + 1);
	g->begin -= (int)((l - lead) + (h - head) + (b - body));
	to = page + g->begin;
	to = (unsigned char *)memcpy(to, lead, (size_t)(l - lead)) + (l - lead);
	to = (unsigned char *)memcpy(to, head, (size_t)(h - head)) + (h - head);
	memcpy(to, body, (size_t)(b - body));
	put16(page + LEAF_HEADER + 2 * g->n++, g->begin);
}

static void clear(struct stage *g)
{
	g->n = 0;
	g->begin = PAGE_BYTES;
}

int stage_flush(struct stage *g)
{
	unsigned char *leaf = g->image + PAGE_BYTES;
	uint32_t changes;
	int rc;

	if (!g->n)
		return SQLITE_OK;
	memset(leaf, 0, LEAF_HEADER);
	leaf[0] = LEAF;
	put16(leaf + 3, g->n);
	put16(leaf + 5, g->begin);
	rc = sqlite3_step(g->copy);
	sqlite3_reset(g->copy);
	memcpy(&changes, g->image + CHANGE_COUNTER, sizeof changes);
	changes++;
	memcpy(g->image + CHANGE_COUNTER, &changes, sizeof changes);
	clear(g);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Make the image of an empty database with the table that sql defines. */
static int make_image(unsigned char **image, const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_int64 n = 0;
	int rc = sqlite3_open(":memory:", &db);

	if (!rc)
		rc = sqlite3_exec(db, "PRAGMA page_size = 65536", NULL, NULL, NULL);
	if (!rc)
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	if (!rc) {
		*image = sqlite3_serialize(db, "main", &n, 0);
		rc = *image ? SQLITE_OK : SQLITE_NOMEM;
	}
	assert(rc || n == 2 * PAGE_BYTES);
	sqlite3_close(db);
	return rc;
}

static int make_image_of(unsigned char **image, sqlite3 *db, const char *table)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT sql FROM main.sqlite_schema WHERE name = ?1", -1,
				    &q, NULL);

	if (!rc)
		rc = sqlite3_bind_text(q, 1, table, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		rc = make_image(image, (const char *)sqlite3_column_text(q, 0));
	else if (rc == SQLITE_DONE)
		rc = SQLITE_CORRUPT;
	sqlite3_finalize(q);
	return rc;
}

static int prepare_copy(struct stage *g, sqlite3 *db, const char *table)
{
	char *sql = sqlite3_mprintf("INSERT INTO main.%s SELECT * FROM stage.%s", table, table);
	int rc = SQLITE_NOMEM;

	if (sql)
		rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &g->copy, NULL);
	sqlite3_free(sql);
	return rc;
}

int stage_open(struct stage **out, sqlite3 *db, const struct table *table)
{
	struct stage *g = calloc(1, sizeof *g);
	int rc = SQLITE_NOMEM;

	*out = NULL;
	if (!g)
		goto out;
	clear(g);
	g->table = table;
	rc = make_image_of(&g->image, db, table->name);
	if (!rc) {
		rc = sqlite3_exec(db, "ATTACH ':memory:' AS stage", NULL, NULL, NULL);
		if (rc)
			sqlite3_free(g->image);
	}
	if (!rc)
		rc = sqlite3_deserialize(db, "stage", g->image, 2 * PAGE_BYTES, 2 * PAGE_BYTES,
					 SQLITE_DESERIALIZE_FREEONCLOSE);
	if (!rc)
		rc = prepare_copy(g, db, table->name);
	if (rc)
		goto out;
	*out = g;
	g = NULL;
out:
	stage_close(g);
	return rc;
}

void stage_close(struct stage *g)
{
	if (!g)
		return;
	sqlite3_finalize(g->copy);
	free(g);
}
