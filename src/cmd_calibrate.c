/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay calibrate: make files for selectors and plans from captures.  It also makes them for
 * the host from step logs, and for the roofline model from measured runs. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/plugin.h"
#include "src/calibrate/calibrate.h"
#include "src/cmd.h"

static const struct calibrator *const calibrators[] = {
	&calibrate_duo,	 &calibrate_host,	&calibrate_minference,
	&calibrate_plan, &calibrate_roofline,	&calibrate_seer,
	&calibrate_skip, &calibrate_xattention, NULL
};

struct args {
	struct opt_list captures, selectors;
	char *output;
	int64_t tokens;
};

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt own_opts[] = {
	{ .name = "capture", .type = OPT_LIST, .off = OFF(captures), .arg = "FILE",
	  .help = "capture to calibrate on; repeat the option for more" },
	{ .name = "output", .type = OPT_STR, .off = OFF(output), .arg = "FILE", .letter = 'o',
	  .help = "file to write" },
	{ .name = "tokens", .type = OPT_INT, .off = OFF(tokens), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_TOK, .help = "use only the first N tokens of each capture, 0: all" },
	PLUGIN_OPT(OFF(selectors)),
	{ 0 }
};
/* clang-format on */

/* ---- captures ---- */

static enum ar_status calibrate(const struct calibrator *c, const void *arg, const struct args *a,
				struct ar_err *err)
{
	struct calib_input in = { .tokens = a->tokens };
	enum ar_status st = calib_open(&in, &a->captures, err);

	if (!st)
		st = c->run(arg, &in, a->output, err);
	calib_close(&in);
	return st;
}

/* ---- the command ---- */

static enum ar_status find_calibrator(const char *name, const struct calibrator **out,
				      struct ar_err *err)
{
	char names[128] = "";
	size_t n = 0;

	for (int i = 0; calibrators[i]; i++) {
		if (name && !strcmp(calibrators[i]->name, name)) {
			*out = calibrators[i];
			return AR_OK;
		}
		if (n < sizeof names)
			n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
					      calibrators[i]->name);
	}
	return name ? ar_fail(err, AR_USAGE, "cannot calibrate '%s'; want one of %s", name, names) :
		      ar_fail(err, AR_USAGE, "nothing to calibrate given; want one of %s", names);
}

static enum ar_status check_operands(const struct calibrator *c, const struct args *a, int n,
				     struct ar_err *err)
{
	if (a->captures.n || a->tokens)
		return ar_fail(err, AR_USAGE, "%s has no effect with %ss; leave it out",
			       a->captures.n ? "capture" : "tokens", c->operand);
	if (!n)
		return ar_fail(err, AR_USAGE, "no %s to calibrate on; name one", c->operand);
	return AR_OK;
}

static enum ar_status check_captures(const struct args *a, int operands, char **argv,
				     struct ar_err *err)
{
	if (operands)
		return ar_fail(err, AR_USAGE, "unexpected operand '%s'", argv[0]);
	if (!a->captures.n)
		return ar_fail(err, AR_USAGE, "no capture to calibrate on; add --capture FILE");
	return AR_OK;
}

static enum ar_status calibrate_main(int argc, char **argv, struct ar_err *err)
{
	const struct calibrator *c = NULL;
	struct args a = { 0 };
	enum ar_status st = find_calibrator(argc ? argv[0] : NULL, &c, err);
	void *arg = NULL;

	if (st)
		return st;
	arg = calloc(1, c->arg_size);
	if (!arg)
		return ar_nomem(err);
	struct opt_group g[] = { { .title = "Options", .opts = own_opts, .base = &a },
				 { .title = c->name, .opts = c->opts, .base = arg },
				 { 0 } };

	argc--, argv++;
	st = opt_init(g, err);
	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = c->run_logs ? check_operands(c, &a, argc, err) :
				   check_captures(&a, argc, argv, err);
	if (!st && !a.output)
		st = ar_fail(err, AR_USAGE, "no file to write; add --output FILE");
	if (!st)
		st = c->run_logs ? c->run_logs(arg, argv, (size_t)argc, a.output, err) :
				   calibrate(c, arg, &a, err);
	opt_release(g);
	free(arg);
	return st;
}

static void calibrate_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	char title[sizeof calibrators / sizeof *calibrators][96];
	struct opt_group g[1 + sizeof calibrators / sizeof *calibrators] = { { .title = "Options",
									       .opts = own_opts } };

	for (int i = 0; calibrators[i]; i++) {
		snprintf(title[i], sizeof title[i], "%s: %s", calibrators[i]->name,
			 calibrators[i]->title);
		g[i + 1] = (struct opt_group){ .title = title[i], .opts = calibrators[i]->opts };
	}
	show(g, f);
}

const struct cmd cmd_calibrate = {
	.name = "calibrate",
	.usage = "SELECTOR --capture FILE... --output FILE [OPTION]...\n"
		 "plan --method LIST --capture FILE --output FILE ...\n"
		 "host LOG... --output FILE [OPTION]...\n"
		 "roofline DB[:RUN]... --output FILE [OPTION]...",
	.title = "make files for selectors, plans of layers, run --host and run --gpu",
	.run = calibrate_main,
	.options = calibrate_show_options,
};
