/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/verify-case.h"

#include <math.h>
#include <string.h>

#include "tests/tap.h"

enum { START = 598, N_TOK = 5, ROW = CASE_HEADS * CASE_DIM };

static const char sparse[] =
	"select=flashprefill,alpha=0.7,sink=1,window=1,dense-first=0/union=none/exec=blocksparse";

/* Outputs of the last layer. */
struct outputs {
	bf16_t row[N_TOK][ROW], decode[ROW];
};

/* Run N_TOK rows of request 0 as a kind, beside a decode of request 1. */
static void run(const struct backend *b, mixed_read_fn *read, const char *method,
		enum row_kind kind, struct outputs *out)
{
	struct batch_entry prompt[] = { { .n_tok = START, .known = START },
					{ .req = 1, .n_tok = 70, .known = 70 } };
	struct batch_entry e[] = {
		{ .start = START, .n_tok = N_TOK, .known = START + N_TOK, .kind = kind },
		{ .req = 1, .start = 70, .n_tok = 1, .known = 71, .kind = ROW_DECODE, .n_emit = 1 }
	};
	bool first = kind == ROW_PREFILL;
	struct backend_case c;
	struct iter_cost cost;
	struct ar_err err;

	e[0].n_emit = first ? 1 : N_TOK;
	if (case_open(&c, b, &(struct case_how){ .method = method, .max_draft_tok = N_TOK - 1 },
		      &err))
		bail_out("%s", err.msg);
	case_run(&c, prompt, 2, &cost);
	case_run(&c, e, 2, &cost);
	read(c.self, first ? 0 : ROW, N_TOK * ROW, out->row[0]);
	read(c.self, first ? N_TOK * ROW : 0, ROW, out->decode);
	case_close(&c);
}

/* The largest difference of outputs, relative to the largest output. */
static double distance(const struct outputs *a, const struct outputs *b)
{
	double most = 0, size = 0;

	for (int r = 0; r < N_TOK; r++)
		for (int i = 0; i < ROW; i++) {
			double x = (double)bf16_to_f32(a->row[r][i]);

			size = fmax(size, fabs(x));
			most = fmax(most, fabs(x - (double)bf16_to_f32(b->row[r][i])));
		}
	return size > 0 ? most / size : INFINITY;
}

void verify_test_all(const struct backend *b, mixed_read_fn *read, double tolerance)
{
	struct outputs verify, dense, chosen;

	run(b, read, sparse, ROW_VERIFY, &verify);
	run(b, read, "dense", ROW_PREFILL, &dense);
	run(b, read, sparse, ROW_PREFILL, &chosen);
	ok(distance(&dense, &verify) <= tolerance,
	   "%s: verify rows attend to every key, as those of a dense chunk: off by %g", b->name,
	   distance(&dense, &verify));
	ok(distance(&dense, &chosen) > tolerance, "%s: a chunk of the method does not: off by %g",
	   b->name, distance(&dense, &chosen));
	ok(!memcmp(verify.decode, dense.decode, sizeof dense.decode),
	   "%s: a decode beside them is as it was", b->name);
}
