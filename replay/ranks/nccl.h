/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, NVIDIA's library of collectives, loaded at run time. */
#ifndef AR_NCCL_H
#define AR_NCCL_H

#include "base/status.h"
#include "replay/ranks/nccl_api.h"

struct nccl {
	int version; /* 22809 is 2.28.9 */
#define X(name, args) int(*name) args;
	NCCL_CALLS(X)
#undef X
#define X(name, args) const char *(*name)args;
	NCCL_TEXTS(X)
#undef X
};

/* Load the library once for the process.  Variables of its environment that must have a value here
 * are set before, unless the user has set them.  AR_NODEV: it is not there, or too old. */
enum ar_status nccl_load(const struct nccl **out, struct ar_err *err);

/* "2.28.9" in text[16]. */
const char *nccl_version_text(int version, char text[16]);

#endif
