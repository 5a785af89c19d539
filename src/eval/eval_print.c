/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/eval.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* A real in 10 columns or more, a blank first; "-" where it is not known. */
static void put_real(int decimals, double x)
{
	if (isnan(x))
		printf("%10s", "-");
	else
		printf(" %9.*f", decimals, x);
}

static void put_name(const char *name, int width)
{
	printf("%*s", width - text_put(name, stdout), "");
}

static void put_run(const struct eval *e, size_t i, int width)
{
	const struct eval_summary s = eval_results_summary(&e->results, i);

	if (!s.run.ended)
		return;
	if (e->r.session.o.db)
		printf("%5" PRId64 "  ", s.run.id);
	put_name(run_label(&e->r, i), width);
	printf(" %7zu %7zu", s.n, s.exact);
	if (i) {
		printf(" %5zu %5zu", s.lost, s.won);
		put_real(4, s.p);
	} else {
		printf("%6s%6s%10s", "-", "-", "-");
	}
	put_real(4, s.logprob);
	put_real(4, i ? s.diff : NAN);
	put_real(4, i ? s.kl : NAN);
	put_real(3, s.run.executed);
	put_real(4, s.run.recall);
	put_real(3, s.run.ttft_ms);
	putchar('\n');
}

/* The report marks such rows, by task and length. */
static void put_weak(const struct eval *e)
{
	const struct eval_summary dense = eval_results_summary(&e->results, 0);

	if (5 * dense.exact < 3 * dense.n)
		printf("weak: dense attention itself gives %zu of %zu answers, less than 60 %%, so "
		       "methods have little to lose\n",
		       dense.exact, dense.n);
}

static void put_expected(const struct eval *e)
{
	const struct eval_expected x = eval_expected(e);

	if (x.n)
		printf("dense attention agrees with \"ok\" in %zu of %zu answers; it alone has "
		       "%zu, the file alone %zu\n",
		       x.agree, x.n, x.only_here, x.only_in_file);
}

enum ar_status eval_print(const struct eval *e, struct ar_err *err)
{
	int width = 6;

	if (!e->results.run[0].ended)
		return AR_OK;
	for (size_t i = 0; i < e->r.in.n_runs; i++) {
		const int n = text_put(run_label(&e->r, i), NULL);

		width = n > width ? n : width;
	}
	printf("\nAnswers, those lost and won against dense attention, and McNemar's exact p;\n"
	       "logprob, diff from dense, kl: nats a token; executed, recall: of sampled chunks\n"
	       "%s%-*s%8s%8s%6s%6s%10s%10s%10s%10s%10s%10s%10s\n",
	       e->r.session.o.db ? "  run  " : "", width, "method", "prompts", "exact", "lost",
	       "won", "p", "logprob", "diff", "kl", "executed", "recall", "TTFT ms");
	for (size_t i = 0; i < e->r.in.n_runs; i++)
		put_run(e, i, width);
	put_weak(e);
	put_expected(e);
	if (fflush(stdout))
		return ar_fail(err, AR_IO, "cannot write standard output: %s", strerror(errno));
	return AR_OK;
}
