/* Subcommands: one file cmd_NAME.c each, one line in cmd_list.h. */
#ifndef AR_CMD_H
#define AR_CMD_H

#include "src/base/opt.h"
#include "src/base/status.h"

struct cmd {
	const char *name;
	const char *usage;	/* operands and forms, after the name: "info FILE" */
	const char *title;	/* one line */

	/* Operands and options: argv[0 .. argc) after the subcommand's name.  A
	 * table of option groups is shown by print_options: --help calls it with
	 * opt_help, the man pages with opt_mdoc. */
	enum ar_status (*run)(int argc, char **argv, struct ar_err *err);
	void (*options)(void (*show)(const struct opt_group *, FILE *), FILE *f);
};

#define CMD(name) extern const struct cmd cmd_##name;
#include "src/cmd_list.h"
#undef CMD

#endif
