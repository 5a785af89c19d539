/* SPDX-License-Identifier: Apache-2.0 */
/* A stream into a file, compressed as the file's name says: by gzip for .gz, by zstd for .zst. */
#ifndef AR_PACKED_H
#define AR_PACKED_H

#include <stdio.h>

#include "base/binfile.h"
#include "base/status.h"

struct packer;

struct packed {
	FILE *f; /* for callers that write a stream */
	struct outfile *to;
	struct packer *packer; /* NULL: f is the file's own stream */
};

/* Open a stream into to, which stays the caller's and must outlive p. */
enum ar_status packed_open(struct packed *p, struct outfile *to, struct ar_err *err);

/* End the stream and release p.  st: how the caller fared; a failure writes no more and is
 * returned.  AR_IO: a write failed; the message names the file. */
enum ar_status packed_close(struct packed *p, enum ar_status st, struct ar_err *err);

#endif
