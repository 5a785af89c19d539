/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow.  The room at least doubles, so that to add an element costs the same however
 * many there are. */
#ifndef AR_GROW_H
#define AR_GROW_H

#include <stdbool.h>
#include <stddef.h>

/* Make room for need elements in `array`, a pointer to memory of malloc() or NULL; cap: size_t, the
 * elements that there is room for.  New elements have no value.  False: there is no memory, and
 * both are as before. */
#define GROW(array, cap, need) array_grow(&(array), &(cap), need, sizeof *(array))

/* The same: array points to the pointer, and an element has size bytes. */
bool array_grow(void *array, size_t *cap, size_t need, size_t size);

/* The elements that an array with room for cap has room for once it holds need. */
size_t array_room(size_t cap, size_t need);

#endif
