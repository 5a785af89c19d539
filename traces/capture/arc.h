/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .arc files: packed captures from which any token range of any layer can be read alone.
 *
 *   offset 0     magic    89 41 52 43 0d 0a 1a 0a  ("\x89" "ARC\r\n\x1a\n")
 *   8            u32      version, 1
 *   12           u32      length H of the header
 *   16           H bytes  header, a JSON object:
 *                           dtype         "bf16"
 *                           model         string, "" when unknown
 *                           layers        ascending numbers of the captured layers
 *                           q_heads, kv_heads, head_dim
 *                           n_tok         tokens of the sequence
 *                           n_prompt      prompt tokens of the sequence
 *                           frame_tok     tokens a frame
 *                           rope_applied  true: Q and K are after RoPE
 *                           rope_theta    absent when unknown
 *                           rope_scaling  as in config.json, absent without scaling
 *   16 + H       frames   back to back
 *   X            index    n u64: file offset of the end of each frame
 *   X + 8 n      footer   u64 X, 32 bytes SHA-256 of header and index, 8 bytes "ARCINDEX"
 *
 * Numbers are little endian.  The SHA-256 covers the bytes from 0 to 16 + H and from X to
 * X + 8 n + 8.  There are n = 3 * layers * ceil(n_tok / frame_tok) frames, ordered by layer,
 * then q, k, v, then token range.  The first frame begins at 16 + H, the last ends at X.
 *
 * A frame is one zstd frame with content size and checksum.  It holds the values
 * [heads][tokens of the range][head_dim] as two planes.  The first plane is the high byte of every
 * value: sign and most of the exponent, which compress well.  The second plane is the low byte.
 */
#ifndef AR_ARC_H
#define AR_ARC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "traces/capture/capture.h"

/* Return whether a file that begins with head[0..n) is an .arc file. */
bool arc_sniff(const unsigned char *head, size_t n);

struct arc;

/* Open path and fill info except its name.  The caller frees info->model and info->layer, also
 * after a failure.  info must outlive the arc. */
enum ar_status arc_open(struct arc **out, const char *path, struct capture_info *info,
			struct ar_err *err);
void arc_close(struct arc *a); /* NULL is fine */
/* Identify the contents of the file: the SHA-256, in hex, of its checksum and of its frames'
 * checksums. */
enum ar_status arc_sum(const struct arc *a, char hex[65], struct ar_err *err);

/* Read like capture_read; the caller has checked the arguments.  Every frame that the range touches
 * is decoded, so long ranges cost less per token. */
enum ar_status arc_read(struct arc *a, int i, enum capture_tensor t, int64_t tok0, int64_t n,
			bf16_t *out, struct ar_err *err);

struct arc_writer;

/* Create a file with the shape and the frame size of info.  name, container and file_bytes are not
 * read.  AR_USAGE: a frame would be too large. */
enum ar_status arc_create(struct arc_writer **out, const char *path,
			  const struct capture_info *info, int level, struct ar_err *err);

/* Write the next frame in file order: n values. */
enum ar_status arc_put(struct arc_writer *w, const bf16_t *x, size_t n, struct ar_err *err);

/* Call after the last frame: write the index and give the file its name. */
enum ar_status arc_finish(struct arc_writer *w, struct ar_err *err);
void arc_destroy(struct arc_writer *w); /* NULL is fine; without arc_finish no file is left */

#endif
