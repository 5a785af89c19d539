/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay search: which rate, chunk size or number of GPUs keeps limits of latency. */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "src/cmd.h"
#include "src/json_file.h"
#include "src/search/search.h"

static const char *const off_on[] = { "off", "on", NULL };

#define OFF(member) offsetof(struct search_args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "slo",
	  .also = "goodput",
	  .type = OPT_STR, .off = OFF(slo), .arg = "LIST",
	  .help = "latency limits to keep, such as ttft:p99:500ms,tpot:p50:30ms; for chunk also "
		  "limits of each request, such as ttft:500ms" },
	{ .name = "lowest", .type = OPT_REAL, .off = OFF(lowest), .arg = "X", .def = "0",
	  .max = 1e9,
	  .help = "least rate, in requests a second, or chunk size to try; 0: found for rate, 256 "
		  "for chunk" },
	{ .name = "highest", .type = OPT_REAL, .off = OFF(highest), .arg = "X", .def = "0",
	  .max = 1e9,
	  .help = "greatest rate, chunk size or number of GPUs to try; 0: found for rate, 16384 "
		  "for chunk, 64 GPUs" },
	{ .name = "tps", .type = OPT_STR, .off = OFF(tps), .arg = "LIST",
	  .help = "tensor parallel sizes of replicas to try with backend roofline; 1,2,4,8 if not "
		  "given (gpus)" },
	{ .name = "precision", .type = OPT_REAL, .off = OFF(precision), .arg = "SHARE",
	  .def = "0.02", .min = 0.01, .max = 1,
	  .help = "end when a rate that keeps the limits and one that does not are this close "
		  "(rate)" },
	{ .name = "intervals", .type = OPT_ENUM, .off = OFF(intervals), .arg = "on|off",
	  .def = "on", .choice = off_on,
	  .help = "search on 40 resamples of the requests, too, for an interval (rate, gpus)" },
	{ .name = "intervals-time", .type = OPT_TIME, .off = OFF(intervals_ns), .arg = "TIME",
	  .def = "10s", .max = 3.6e12,
	  .help = "most time that the interval of a method takes, on all processors (rate, gpus)" },
	{ .name = "apart", .type = OPT_FLAG, .off = OFF(apart),
	  .help = "try replicas for prefill and others for decodes, too (gpus)" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ 0 }
};
/* clang-format on */

static const struct search_kind *const kinds[] = { &search_rate, &search_chunk, &search_gpus,
						   NULL };

static enum ar_status search_main(int argc, char **argv, struct ar_err *err)
{
	for (int i = 0; argc && kinds[i]; i++)
		if (!strcmp(argv[0], kinds[i]->name))
			return search_run(kinds[i], opts, argc, argv, err);
	return argc ? ar_fail(err, AR_USAGE, "cannot search for '%s'; want rate, chunk or gpus",
			      argv[0]) :
		      ar_fail(err, AR_USAGE, "nothing to search for; want rate, chunk or gpus");
}

static void search_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	const struct opt_group g[] = { { .title = "Search", .opts = opts }, { 0 } };

	show(g, f);
	run_options_show(RUN_OWN_NONE, NULL, show, f);
}

const struct cmd cmd_search = {
	.name = "search",
	.usage = "rate --slo LIST --trace FILE [OPTION]...\n"
		 "chunk --slo LIST --trace FILE [OPTION]...\n"
		 "gpus --slo LIST --trace FILE [OPTION]...",
	.title = "find the rate, chunk size or number of GPUs that keeps limits of latency",
	.run = search_main,
	.options = search_show_options,
};
