/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration: files with measured parameters.  From captures come the files of selectors, and
 * plans; from step logs the model of a host; from measured runs the rates of a GPU.  Each
 * calibrator has a file calibrate_NAME.c and a row in cmd_calibrate.c. */
#ifndef AR_CALIBRATE_H
#define AR_CALIBRATE_H

#include <cjson/cJSON.h>
#include <stdio.h>

#include "base/opt.h"
#include "base/status.h"
#include "kernels/attn.h"
#include "traces/capture/capture.h"

struct calib_input {
	struct capture **capture; /* of one model */
	size_t n;
	int64_t tokens; /* tokens to use of each capture, from its first; 0: all */
};

/* Open the captures at path, at least one.  AR_DATA: a file cannot be used, or they are of
 * different models.  Close *in even after a failure. */
enum ar_status calib_open(struct calib_input *in, const struct opt_list *path, struct ar_err *err);
void calib_close(struct calib_input *in);

struct calibrator {
	const char *name;	/* of the selector, or "plan", "host" or "roofline" */
	const char *operand;	/* kind of file that run_logs() reads, as "step log" */
	const char *title;	/* one line: the file that it writes */
	const struct opt *opts; /* besides the options of the command */
	size_t arg_size;

	/* Write the file out, whole or not at all.  One of the two is NULL: the input is captures,
	 * or n operands. */
	enum ar_status (*run)(const void *arg, const struct calib_input *in, const char *out,
			      struct ar_err *err);
	enum ar_status (*run_logs)(const void *arg, char *const *path, size_t n, const char *out,
				   struct ar_err *err);
};

extern const struct calibrator calibrate_duo, calibrate_host, calibrate_minference, calibrate_plan,
	calibrate_roofline, calibrate_seer, calibrate_skip, calibrate_xattention;

/* A file with an entry for each layer and query head.  table[0 .. CAPTURE_MAX_LAYER] are rows, or
 * NULL where no capture has the layer. */
struct calib_table {
	size_t entry; /* bytes */

	/* Add the i-th layer of a capture to row, [q_heads] entries that begin as zeros. */
	enum ar_status (*fit)(const void *arg, const struct calib_input *in, struct capture *c,
			      int i, void *row, struct ar_err *err);

	/* The content of the file; NULL: no memory.  Or write it to f, whose errors are seen
	 * later.  One of the two is NULL. */
	cJSON *(*make)(const void *arg, void *const *table, int q_heads);
	enum ar_status (*put)(const void *arg, void *const *table, const struct capture_info *info,
			      FILE *f, struct ar_err *err);
};
enum ar_status calib_table(const struct calib_table *t, const void *arg,
			   const struct calib_input *in, const char *out, struct ar_err *err);

/* Rows of a prompt as a chunk: a batch of one request. */
struct calib_rows {
	struct attn_batch b;
	const bf16_t *q; /* of the first row */
	int32_t row0[2], pos0[1], qblk0[2], left[1], len[1], page0[2];
};

/* One layer of a capture, after RoPE: a batch of one prompt in a single chunk. */
struct calib_layer {
	struct attn_batch b;
	bf16_t *q;
	struct kv_cache kv;
	struct calib_rows all; /* b's arrays */
	int32_t *page, *pos;
};

/* Number of tokens of a capture to use. */
int64_t calib_tokens(const struct calib_input *in, const struct capture *c);

/* Load the first n_tok tokens of the i-th captured layer. */
enum ar_status calib_layer_load(struct calib_layer *l, struct capture *c, int i, int64_t n_tok,
				int page_tok, struct ar_err *err);
void calib_layer_release(struct calib_layer *l); /* may be called twice */

/* Make *r the rows from .. to - 1 of the layer, a chunk after the rows before.  The prompt ends
 * with the layer's rows.  *r stays where it is, as its batch points into it. */
void calib_layer_rows(struct calib_rows *r, const struct calib_layer *l, int from, int to);

/* Attention of one head of a layer, a query block at a time. */
struct calib_attention {
	const struct calib_layer *l;
	int head;
	float *k; /* [head_dim][n_row] */
	float *x; /* [page_tok][n_row] probabilities of a query block's rows */
};

enum ar_status calib_attention_init(struct calib_attention *t, const struct calib_layer *l,
				    int head, struct ar_err *err);
void calib_attention_rows(struct calib_attention *t, int qa); /* write x up to each row's key */
void calib_attention_release(struct calib_attention *t);

#endif
