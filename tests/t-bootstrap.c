/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/bootstrap.h"

#include <math.h>

#include "tests/tap.h"

int main(void)
{
	double draw[41], lo, hi;

	plan(0);
	for (int i = 0; i < 41; i++)
		draw[i] = i * 16 % 41;
	bootstrap_interval(draw, 41, 0.95, &lo, &hi);
	ok(fabs(lo - 1) < 1e-12 && fabs(hi - 39) < 1e-12,
	   "places 1 and 39 of 0 ... 40 are its ends");
	bootstrap_interval(draw, 41, 0.9, &lo, &hi);
	ok(fabs(lo - 2) < 1e-12 && fabs(hi - 38) < 1e-12, "... 2 and 38 of a narrower one");
	bootstrap_interval(draw, 1, 0.95, &lo, &hi);
	ok(lo >= 0 && lo <= 0 && hi <= 0, "one value is both of them");
	return done_testing();
}
