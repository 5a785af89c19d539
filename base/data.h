/* SPDX-License-Identifier: Apache-2.0 */
/* Files that come with the program: model presets, samples. */
#ifndef AR_DATA_H
#define AR_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* Find the data file rel ("model/presets/x.json") and write its path into path[0..n).  False: not
 * found.  The search order is: $ATTNREPLAY_DATA; ../share/attnreplay beside the program's folder;
 * the program's folder and its parent (a build tree); the configured data folder. */
bool data_find(const char *rel, char *path, size_t n);

/* Open path for reading, with further flags of open(2).  A relative path that does not exist names
 * a data file ("traces/samples/x.csv").  -1 with errno: neither exists. */
int data_open(const char *path, int flags);

#endif
