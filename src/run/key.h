/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of a run: runs with equal keys have equal results, up to the noise of measured times.
 *
 * It is the start of the SHA-256 of sorted lines "name=value": the options that shape results with
 * their resolved values, input files by content, method, backend, device and version.
 */
#ifndef AR_RUN_KEY_H
#define AR_RUN_KEY_H

#include "base/status.h"
#include "src/run/key_inputs.h"
#include "src/run/options.h"

enum { RUN_KEY_SIZE = 33 }; /* 32 hex digits and NUL */

struct run_key {
	const struct run_options *o;
	const char *backend;
	const char *method;	  /* as plan_parse() takes it; NULL: none */
	size_t repeat;		  /* which of --repeats, from 0 */
	const char *device;	  /* name of the GPU; NULL: none, or not known yet */
	const char *version;	  /* AR_REVISION */
	const char *trace_sha256; /* of a trace that cannot be read again; NULL: read it */
};

/* Write the key.  A GPU's times may change with every commit, so keys of a GPU hold the revision;
 * with uncommitted changes no key repeats.  Keys of other backends hold the release.  AR_DATA: an
 * input cannot be read. */
enum ar_status run_key(char key[RUN_KEY_SIZE], const struct run_key *k, struct key_inputs *in,
		       struct ar_err *err);
/* The lines that the key sums up, but for what no other process can have; the caller frees them. */
enum ar_status run_key_lines(char **text, const struct run_key *k, struct key_inputs *in,
			     struct ar_err *err);

#endif
