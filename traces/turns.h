/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of each session, in order of the trace. */
#ifndef AR_TURNS_H
#define AR_TURNS_H

#include "traces/trace.h"

#define TURNS_NONE UINT32_MAX

struct turns {
	const struct trace *t;
	uint32_t *req; /* numbers of requests, by session and time */
	size_t *first; /* [n_session + 1] the first one of each session in req */
};

/* False: no memory. */
bool turns_open(struct turns *s, const struct trace *t);
void turns_close(struct turns *s);

/* The number of a request of a session, or TURNS_NONE: that of a turn, the first or the last. */
uint32_t turns_find(const struct turns *s, int32_t session, uint32_t turn);
uint32_t turns_first(const struct turns *s, int32_t session);
uint32_t turns_last(const struct turns *s, int32_t session);

#endif
