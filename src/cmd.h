/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands: one file cmd_NAME.c each, one line in cmd_list.h. */
#ifndef AR_CMD_H
#define AR_CMD_H

#include "base/opt.h"
#include "base/status.h"

struct cmd {
	const char *name;
	const char *usage; /* operands and forms, after the name: "info FILE" */
	const char *title; /* one line */

	/* argv[0 .. argc): options and operands, after the subcommand's name. */
	enum ar_status (*run)(int argc, char **argv, struct ar_err *err);

	/* Call show with each group of its options: opt_help for --help, opt_mdoc for the man
	 * pages. */
	void (*options)(void (*show)(const struct opt_group *, FILE *), FILE *f);
};

/* The command line of the subcommand name; the caller frees it.  NULL: no memory. */
char *cmd_line(const char *name, int argc, char **argv);

#define CMD(name) extern const struct cmd cmd_##name;
#include "src/cmd_list.h"
#undef CMD

#endif
