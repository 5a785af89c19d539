/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay: the command line.  Finds the subcommand, prints its error and sets the exit
 * status. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/log.h"
#include "base/status.h"
#include "src/cmd.h"
#include "src/revision.h"

static const struct cmd *const cmds[] = {
#define CMD(name) &cmd_##name,
#include "src/cmd_list.h"
#undef CMD
	NULL
};

static void usage(FILE *f)
{
	fputs("usage: attnreplay [-q] [-v] COMMAND [OPTION]... [OPERAND]...\n"
	      "       attnreplay help [COMMAND]\n"
	      "       attnreplay -V\n\ncommands:\n",
	      f);
	for (int i = 0; cmds[i]; i++)
		fprintf(f, "  %-14s%s\n", cmds[i]->name, cmds[i]->title);
	fputs("\n'attnreplay help COMMAND' lists a command's options.\n", f);
}

static void version(void)
{
	printf("attnreplay %s\nsqlite %s\nzstd %s\ncuda %s\n", AR_REVISION, sqlite3_libversion(),
	       ZSTD_versionString(), HAVE_CUDA ? "yes" : "no");
}

static void cmd_help(const struct cmd *c)
{
	for (const char *u = c->usage; *u; u += *u == '\n') {
		size_t n = strcspn(u, "\n");

		printf("%s attnreplay %s ", u == c->usage ? "usage:" : "      ", c->name);
		fwrite(u, 1, n, stdout);
		putchar('\n');
		u += n;
	}
	printf("\n%s\n", c->title);
	c->options(opt_help, stdout);
}

static bool is_help(const char *arg)
{
	return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

static bool is_version(const char *arg)
{
	return !strcmp(arg, "--version") || !strcmp(arg, "-V");
}

/* --mdoc prints the option lists as the man pages include them. */
static enum ar_status dispatch_command(const struct cmd *c, int argc, char **argv,
				       struct ar_err *err)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
		if (is_help(argv[i])) {
			cmd_help(c);
			return AR_OK;
		}
		if (is_version(argv[i])) {
			version();
			return AR_OK;
		}
		if (!strcmp(argv[i], "--mdoc")) {
			c->options(opt_mdoc, stdout);
			return AR_OK;
		}
	}
	return c->run(argc, argv, err);
}

static enum ar_status find_cmd(const struct cmd **c, const char *name, struct ar_err *err)
{
	for (int k = 0; cmds[k]; k++)
		if (!strcmp(name, cmds[k]->name)) {
			*c = cmds[k];
			return AR_OK;
		}
	return ar_fail(err, AR_USAGE, "unknown command '%s'; try 'attnreplay --help'", name);
}

/* attnreplay help [COMMAND] */
static enum ar_status help(int argc, char **argv, struct ar_err *err)
{
	const struct cmd *c;
	enum ar_status st;

	if (!argc || is_help(argv[0])) {
		usage(stdout);
		return AR_OK;
	}
	if (argc > 1)
		return ar_fail(err, AR_USAGE, "unexpected operand '%s'; help takes one command",
			       argv[1]);
	st = find_cmd(&c, argv[0], err);
	if (!st)
		cmd_help(c);
	return st;
}

static enum ar_status run_program(int argc, char **argv, struct ar_err *err)
{
	const struct cmd *c;
	enum ar_status st;
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (is_help(argv[i])) {
			usage(stdout);
			return AR_OK;
		}
		if (is_version(argv[i])) {
			version();
			return AR_OK;
		}
		if (!log_option(argv[i]))
			return ar_fail(err, AR_USAGE,
				       "unknown option '%s'; try 'attnreplay "
				       "--help'",
				       argv[i]);
	}
	if (i == argc)
		return ar_fail(err, AR_USAGE, "no command given; try 'attnreplay --help'");
	if (!strcmp(argv[i], "help"))
		return help(argc - i - 1, argv + i + 1, err);
	st = find_cmd(&c, argv[i], err);
	if (st)
		return st;
	st = dispatch_command(c, argc - i - 1, argv + i + 1, err);
	if (st == AR_USAGE)
		log_debug("try 'attnreplay %s --help'", c->name);
	return st;
}

int main(int argc, char **argv)
{
	struct ar_err err = { 0 };
	enum ar_status st;

	ar_catch_interrupts();
	signal(SIGXFSZ, SIG_IGN); /* over the size limit write() fails, no kill */
	st = run_program(argc, argv, &err);
	errno = 0;
	if (fflush(stdout) || ferror(stdout) || fclose(stdout)) {
		if (!st)
			st = ar_fail(&err, AR_IO, "cannot write standard output: %s",
				     errno ? strerror(errno) : "earlier output is lost");
	}
	if (st && *err.msg)
		log_line(LOG_ERROR, "%s", err.msg);
	return ar_exit_code(st);
}
