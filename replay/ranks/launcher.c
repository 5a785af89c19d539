/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/launcher.h"

#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "replay/ranks/world.h"

/* The first whose variable `has` is set.  mpirun in a batch script of Slurm leaves SLURM_PROCID 0
 * in all ranks, so it comes first.  A batch script itself has SLURM_PROCID as well, but no step. */
static const struct launcher {
	const char *name, *has, *rank, *size;
	const char *local;  /* NULL: it does not tell */
	const char *job[2]; /* what names a start of it, NULL: nothing */
} launchers[] = {
	{ "mpirun of Open MPI",
	  "OMPI_COMM_WORLD_RANK",
	  "OMPI_COMM_WORLD_RANK",
	  "OMPI_COMM_WORLD_SIZE",
	  "OMPI_COMM_WORLD_LOCAL_RANK",
	  { "PMIX_NAMESPACE" } },
	{ "srun",
	  "SLURM_STEP_ID",
	  "SLURM_PROCID",
	  "SLURM_NTASKS",
	  "SLURM_LOCALID",
	  { "SLURM_JOB_ID", "SLURM_STEP_ID" } },
	{ "a launcher with PMI", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", { NULL } },
};

static enum ar_status read_number(const struct launcher *l, const char *name, int least, int most,
				  int *x, struct ar_err *err)
{
	const char *text = getenv(name);
	int64_t v = -1;

	if (!text || !num_count(text, &v) || v < least || v > most)
		return ar_fail(err, AR_USAGE,
			       "%s started this process, but %s is '%s'; want a number from %d to "
			       "%d, or give --rank",
			       l->name, name, text ? text : "", least, most);
	*x = (int)v;
	return AR_OK;
}

static void make_key(const struct launcher *l, char key[LAUNCH_KEY_SIZE])
{
	char hex[SHA256_DIGEST_STRING_LENGTH];
	SHA2_CTX sha;

	SHA256Init(&sha);
	for (size_t i = 0; i < 2; i++) {
		const char *text = l->job[i] ? getenv(l->job[i]) : NULL;

		if (text)
			SHA256Update(&sha, (const uint8_t *)text, strlen(text) + 1);
	}
	SHA256End(&sha, hex);
	snprintf(key, LAUNCH_KEY_SIZE, "%.*s", LAUNCH_KEY_SIZE - 1, hex);
}

static enum ar_status take(const struct launcher *l, struct launched_rank *out, struct ar_err *err)
{
	enum ar_status st = read_number(l, l->size, 1, RANKS_MAX, &out->size, err);

	out->launcher = l->name;
	out->local = -1;
	if (!st)
		st = read_number(l, l->rank, 0, out->size - 1, &out->rank, err);
	if (!st && l->local && getenv(l->local))
		st = read_number(l, l->local, 0, out->rank, &out->local, err);
	make_key(l, out->key);
	return st;
}

enum ar_status launcher_ask(struct launched_rank *out, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		if (getenv(launchers[i].has))
			return take(&launchers[i], out, err);
	if (getenv("SLURM_JOB_ID"))
		return ar_fail(
			err, AR_USAGE,
			"this is the script of Slurm job %s and no step of it, so the rank is "
			"not known; start the command with srun or mpirun",
			getenv("SLURM_JOB_ID"));
	return ar_fail(err, AR_USAGE,
		       "no launcher started this process, so its rank is not known; start it with "
		       "srun or mpirun, or give --rank");
}
