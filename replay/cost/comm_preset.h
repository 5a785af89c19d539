/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of collectives that come with the program.  Each is of one kind of GPU, and of NCCL or of
 * an engine. */
#ifndef AR_COMM_PRESET_H
#define AR_COMM_PRESET_H

#include <stdbool.h>
#include <stddef.h>

/* The name of the table for a GPU, a preset of roofline_gpu_names: that of the engine whose name
 * policy begins with; else, or with policy NULL, that of NCCL.  NULL: there is none. */
const char *comm_preset_of(const char *gpu, const char *policy);

/* Find the table that a file or a preset is, and write its path into path[0..n).  False: there is
 * none. */
bool comm_preset_find(const char *name_or_path, char *path, size_t n);

#endif
