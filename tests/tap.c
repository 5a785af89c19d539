/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tap.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned planned, ran, failed;
static const char *todo_why;

__attribute__((format(printf, 2, 0))) static void vline(const char *head, const char *fmt,
							va_list ap)
{
	fputs(head, stdout);
	vprintf(fmt, ap);
	putchar('\n');
}

void plan(unsigned n)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("TAP version 13");
	if ((planned = n))
		printf("1..%u\n", n);
}

void skip_all(const char *why, ...)
{
	va_list ap;

	va_start(ap, why);
	vline("1..0 # SKIP ", why, ap);
	va_end(ap);
	exit(0);
}

void bail_out(const char *why, ...)
{
	va_list ap;

	va_start(ap, why);
	vline("Bail out! ", why, ap);
	va_end(ap);
	exit(255);
}

void diag(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vline("# ", fmt, ap);
	va_end(ap);
}

void todo(const char *why)
{
	todo_why = why;
}

void skip(unsigned n, const char *why)
{
	while (n--)
		printf("ok %u # SKIP %s\n", ++ran, why);
}

__attribute__((format(printf, 4, 0))) static int report(int pass, const char *file, int line,
							const char *fmt, va_list ap)
{
	printf("%sok %u - ", pass ? "" : "not ", ++ran);
	vprintf(fmt, ap);
	if (todo_why)
		printf(" # TODO %s", todo_why);
	putchar('\n');
	if (!pass) {
		diag("at %s:%d", file, line);
		failed += !todo_why;
	}
	return pass;
}

int tap_ok(int pass, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(pass, file, line, fmt, ap);
	va_end(ap);
	return pass;
}

int tap_is_int(long long got, long long want, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!report(got == want, file, line, fmt, ap))
		diag("got %lld, want %lld", got, want);
	va_end(ap);
	return got == want;
}

int tap_is_str(const char *got, const char *want, const char *file, int line, const char *fmt, ...)
{
	int pass = got && want ? !strcmp(got, want) : got == want;
	va_list ap;

	va_start(ap, fmt);
	if (!report(pass, file, line, fmt, ap))
		diag("got '%s', want '%s'", got ? got : "(null)", want ? want : "(null)");
	va_end(ap);
	return pass;
}

int tap_is_f32(const float *got, const float *want, size_t n, double atol, double rtol,
	       const char *file, int line, const char *fmt, ...)
{
	size_t bad = 0, worst = 0;
	double worst_err = -1;
	va_list ap;

	for (size_t i = 0; i < n; i++) {
		double err = fabs((double)got[i] - want[i]);
		double tol = atol + rtol * fabs((double)want[i]);

		/* inf and nan must match exactly; the negation catches nan */
		if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
			continue;
		if (!(err <= tol)) {
			bad++;
			if (!(err <= worst_err))
				worst_err = err, worst = i;
		}
	}
	va_start(ap, fmt);
	if (!report(bad == 0, file, line, fmt, ap))
		diag("%zu of %zu off; worst at [%zu]: got %g, want %g", bad, n, worst, got[worst],
		     want[worst]);
	va_end(ap);
	return bad == 0;
}

bool sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
	return true;
#else
	return false;
#endif
}

int rounds(int all)
{
	return sanitized() ? (all + 3) / 4 : all;
}

int fault_stride(int sparse)
{
	return sanitized() ? sparse : 1;
}

int done_testing(void)
{
	if (!planned)
		printf("1..%u\n", ran);
	else if (planned != ran)
		diag("planned %u tests but ran %u", planned, ran);
	if (failed)
		diag("failed %u of %u", failed, ran);
	return failed || (planned && planned != ran);
}
