/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/nccl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dynlib.h"

/* Values that the user may set otherwise.  NVLS: multicast over NVLink, which hangs where memory
 * for it is missing.  RUNTIME_CONNECT: connect when ranks join, not in the first collective, which
 * waits behind a kernel that holds the stream.  RAS: a port that a second job needs, too. */
static const struct {
	const char *name, *value;
} settings[] = {
	{ "NCCL_NVLS_ENABLE", "0" },
	{ "NCCL_RUNTIME_CONNECT", "0" },
	{ "NCCL_RAS_ENABLE", "0" },
};

static void set_environment(void)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		setenv(settings[i].name, settings[i].value, 0);
	if (getenv("NCCL_DEBUG")) /* its log goes to standard output, which is ours */
		setenv("NCCL_DEBUG_FILE", "/dev/stderr", 0);
}

const char *nccl_version_text(int version, char text[16])
{
	snprintf(text, 16, "%d.%d.%d", version / 10000 % 100, version / 100 % 100, version % 100);
	return text;
}

static enum ar_status check_version(struct nccl *n, struct ar_err *err)
{
	char have[16], want[16];

	if (n->GetVersion(&n->version))
		return ar_fail(err, AR_NODEV, "NCCL does not tell its version");
	if (n->version < NCCL_OLDEST)
		return ar_fail(err, AR_NODEV, "NCCL %s is too old; want %s or newer",
			       nccl_version_text(n->version, have),
			       nccl_version_text(NCCL_OLDEST, want));
	return AR_OK;
}

enum ar_status nccl_load(const struct nccl **out, struct ar_err *err)
{
	static struct nccl nccl; /* version 0: not loaded */
	const struct dynlib_sym syms[] = {
#define X(name, args) { "nccl" #name, (void **)&nccl.name },
		NCCL_CALLS(X) NCCL_TEXTS(X)
#undef X
			{ 0 }
	};
	enum ar_status st = AR_OK;

	*out = &nccl;
	if (nccl.version)
		return AR_OK;
	set_environment();
	st = dynlib_load("libnccl.so.2", "ATTNREPLAY_NCCL", syms, err);
	if (!st)
		st = check_version(&nccl, err);
	if (st)
		nccl.version = 0;
	return st;
}
