/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks from the variables of launchers, also where variables of another one are there. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "replay/ranks/launcher.h"
#include "tests/tap.h"

enum { MOST = 9 };

static const struct c {
	const char *what;
	const char *var[MOST];
	enum ar_status st;
	const char *words; /* of the launcher, or of the message */
	int rank, size, local;
} cases[] = {
	{ "srun",
	  { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_NTASKS=4",
	    "SLURM_LOCALID=1" },
	  AR_OK,
	  "srun",
	  3,
	  4,
	  1 },
	{ "Open MPI",
	  { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0" },
	  AR_OK,
	  "mpirun",
	  1,
	  2,
	  0 },
	{ "PMI", { "PMI_RANK=2", "PMI_SIZE=8" }, AR_OK, "PMI", 2, 8, -1 },
	{ "PMI with the rank on the host",
	  { "PMI_RANK=2", "PMI_SIZE=8", "MPI_LOCALRANKID=2" },
	  AR_OK,
	  "PMI",
	  2,
	  8,
	  2 },
	{ "mpirun in a batch script of Slurm, where all ranks have SLURM_PROCID 0",
	  { "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0",
	    "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=2" },
	  AR_OK,
	  "mpirun",
	  2,
	  4,
	  2 },
	{ "mpirun whose daemons are a step of Slurm",
	  { "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1",
	    "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2" },
	  AR_OK,
	  "mpirun",
	  1,
	  2,
	  -1 },
	{ "a step of Slurm with PMI",
	  { "SLURM_JOB_ID=7", "SLURM_STEP_ID=3", "SLURM_PROCID=1", "SLURM_NTASKS=2", "PMI_RANK=1",
	    "PMI_SIZE=2" },
	  AR_OK,
	  "srun",
	  1,
	  2,
	  -1 },
	{ "a batch script of Slurm, which is no rank",
	  { "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0" },
	  AR_USAGE,
	  "this is the script of Slurm job 7 and no step of it",
	  0,
	  0,
	  0 },
	{ "no launcher", { NULL }, AR_USAGE, "no launcher started this process", 0, 0, 0 },
	{ "a rank outside of the size",
	  { "PMI_RANK=2", "PMI_SIZE=2" },
	  AR_USAGE,
	  "PMI started this process, but PMI_RANK is '2'; want a number from 0 to",
	  0,
	  0,
	  0 },
	{ "a size that is missing",
	  { "OMPI_COMM_WORLD_RANK=0" },
	  AR_USAGE,
	  "OMPI_COMM_WORLD_SIZE is ''; want a number from 1 to 64",
	  0,
	  0,
	  0 },
	{ "a size that is no number",
	  { "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=two" },
	  AR_USAGE,
	  "srun started this process, but SLURM_NTASKS is 'two'",
	  0,
	  0,
	  0 },
	{ "a rank on the host above the rank",
	  { "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=2" },
	  AR_USAGE,
	  "MPI_LOCALRANKID is '2'; want a number from 0 to 1",
	  0,
	  0,
	  0 },
};

/* The variables of the case, and no other of a launcher. */
static void set_variables(const struct c *c)
{
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int k = 0; k < MOST && cases[i].var[k]; k++) {
			char *name = strdup(cases[i].var[k]);

			*strchr(name, '=') = 0;
			unsetenv(name);
			free(name);
		}
	for (int k = 0; k < MOST && c->var[k]; k++)
		putenv((char *)c->var[k]);
}

static bool is_right(const struct c *c)
{
	struct launched_rank r = { 0 };
	struct ar_err err = { 0 };

	set_variables(c);
	if (launcher_ask(&r, &err) != c->st)
		return false;
	return c->st ? strstr(err.msg, c->words) != NULL :
		       strstr(r.launcher, c->words) && r.rank == c->rank && r.size == c->size &&
			       r.local == c->local;
}

/* Ranks of one start have the same key, and those of another start another. */
static void test_keys(void)
{
	static const struct c starts[] = {
		{ .var = { "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2",
			   "SLURM_JOB_ID=7" } },
		{ .var = { "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2",
			   "SLURM_JOB_ID=7" } },
		{ .var = { "SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_NTASKS=2",
			   "SLURM_JOB_ID=7" } },
	};
	struct launched_rank r[3];

	for (int i = 0; i < 3; i++) {
		set_variables(&starts[i]);
		if (launcher_ask(&r[i], NULL))
			bail_out("no rank");
	}
	is_str(r[1].key, r[0].key, "ranks of one start have one key");
	ok(strcmp(r[2].key, r[0].key) != 0 && strlen(r[2].key) == LAUNCH_KEY_SIZE - 1,
	   "... and those of the next step another");
}

int main(void)
{
	plan(0);
	unsetenv("PMIX_NAMESPACE");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(is_right(&cases[i]), "%s", cases[i].what);
	test_keys();
	return done_testing();
}
