/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench: its modes. */
#ifndef AR_BENCH_H
#define AR_BENCH_H

#include "base/opt.h"
#include "base/status.h"

struct bench_args {
	/* of every mode */
	int64_t repeat, sample, seed, device;
	int format;
	char *json;
	bool dry_run;

	/* of some */
	char *what, *batch, *chunk, *context, *density, *lists, *cases;
	int64_t q_heads, kv_heads, head_dim, block_size;
	bool match;
	bool heads; /* --q-heads, --kv-heads or --head-dim was given */
	bool density_given;
	char *decode; /* parts for decodes */
	char *method, *capture, *layer, *table, *model;
	struct opt_list use, selectors;
	int64_t tp, sample_chunks, left;
	char *sizes, *out, *devices;
	int memory;
};

enum { FORMAT_TABLE, FORMAT_JSON };
enum { MEMORY_DEVICE, MEMORY_HOST };

enum ar_status bench_attention(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_method(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_decode(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_host(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_delta(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_ssm(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_collective(const struct bench_args *a, struct ar_err *err);
enum ar_status bench_paper(const struct bench_args *a, struct ar_err *err);

#endif
