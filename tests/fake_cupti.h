/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the test and the fake CUPTI library. */
#ifndef AR_FAKE_CUPTI_H
#define AR_FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

struct fake_cupti {
	uint32_t version;
	int subscribe, enable, push, flush, node; /* results of these calls; 0: success */
	int subscribed, finalized, kinds, calls, callbacks, depth; /* open resources */
	int zeroed;		 /* the caller promised zeroed buffers */
	int dirty;		 /* buffers that were not zero */
	int forced;		 /* flushes that took kernels which may still run */
	size_t dropped, waiting; /* waiting: kernels whose records nobody has got */
};

struct fake_cupti *fake_cupti(void);
void fake_launch(const char *name, uint32_t corr, uint64_t start, uint64_t end);

/* A node of a graph is created, or cloned from another one. */
void fake_node(uint64_t id, uint64_t from);
/* A kernel of a graph, launched from node id. */
void fake_graph_launch(uint64_t id, uint32_t corr, uint64_t start, uint64_t end);

#endif
