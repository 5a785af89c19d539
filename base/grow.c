/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 16 };

size_t array_room(size_t cap, size_t need)
{
	size_t room = cap > SIZE_MAX / 2 ? SIZE_MAX : 2 * cap;

	if (need <= cap)
		return cap;
	if (room < LEAST)
		room = LEAST;
	return room < need ? need : room;
}

bool array_grow(void *array, size_t *cap, size_t need, size_t size)
{
	const size_t room = array_room(*cap, need);
	void *p;

	if (room == *cap)
		return true;
	if (room > PTRDIFF_MAX / size)
		return false;
	memcpy(&p, array, sizeof p);
	p = realloc(p, room * size);
	if (!p)
		return false;
	memcpy(array, &p, sizeof p);
	*cap = room;
	return true;
}
