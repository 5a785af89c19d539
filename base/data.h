/* Files that come with the program: model presets, samples. */
#ifndef AR_DATA_H
#define AR_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* Write the path of the data file rel ("model/presets/x.json") into path[0..n); false when it is
 * nowhere.  Looked for in $ATTNREPLAY_DATA, in ../share/attnreplay beside the program's
 * folder, in the program's folder and the one above (a build tree), and where the
 * package was configured to be installed. */
bool data_find(const char *rel, char *path, size_t n);

/* open(2) for reading, with more flags; where path is relative and leads nowhere, the data
 * file of that name ("traces/samples/x.csv").  -1 with errno when there is neither. */
int data_open(const char *path, int flags);

#endif
