/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/methods/reuse.h"

#include <stdlib.h>

#include "kernels/methods/method.h"

static const char *const attends[] = { "list", "full", NULL };

#define OFF(member) offsetof(struct method_part, reuse.member)
/* clang-format off */
const struct opt reuse_opts[] = {
	{ .name = "reuse", .type = OPT_INT, .off = OFF(every), .arg = "N", .def = "1", .min = 1,
	  .max = 1 << 16, .help = "the first of N layers chooses, the others take its lists" },
	{ .name = "reselect", .type = OPT_STR, .off = OFF(layers), .arg = "LAYERS",
	  .help = "these layers choose instead, as in 2+13" },
	{ .name = "attend", .type = OPT_ENUM, .off = OFF(attend), .arg = "TO", .def = "list",
	  .choice = attends, .help = "layers that choose see their lists, or every key" },
	{ 0 }
};
/* clang-format on */

/* Read the number at *text, and leave it at the one after; -1: there is none. */
static long next_layer(const char **text)
{
	char *end;
	long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : -1;

	if (n < 0 || n > INT16_MAX || (*end && *end != '+'))
		return -1;
	*text = *end ? end + 1 : NULL;
	return n;
}

static bool ascends(const char *layers)
{
	for (long n, last = -1; layers; last = n) {
		n = next_layer(&layers);
		if (n <= last)
			return false;
	}
	return true;
}

enum ar_status reuse_check(const struct reuse *r, struct ar_err *err)
{
	if (r->layers && !ascends(r->layers))
		return ar_fail(err, AR_USAGE,
			       "reselect=%s: want ascending layers with plus signs between, such "
			       "as 2+13",
			       r->layers);
	if (r->layers && r->every > 1)
		return ar_fail(err, AR_USAGE,
			       "reuse=%lld and reselect=%s both say which layers choose: leave one "
			       "out",
			       (long long)r->every, r->layers);
	if (r->attend == REUSE_ATTEND_FULL && !reuse_on(r))
		return ar_fail(err, AR_USAGE,
			       "attend=full: every layer chooses, so no layer sees a list: add "
			       "reuse=N or reselect=LAYERS");
	return AR_OK;
}

bool reuse_chooses(const struct reuse *r, int layer, int n)
{
	const char *text = r->layers;
	bool named = false;

	if (!text)
		return n % r->every == 0;
	while (text)
		named |= next_layer(&text) == layer;
	return named;
}
