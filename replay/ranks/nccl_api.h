/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL's interface that is used here, from version 2.19 on.  Its header is not needed:
 * the library keeps these types and numbers. */
#ifndef AR_NCCL_API_H
#define AR_NCCL_API_H

#include <stddef.h>

enum { NCCL_OLDEST = 21900, NCCL_MAGIC = (int)0xcafebeef, NCCL_UNDEFINED = -2147483647 - 1 };
enum { NCCL_OK = 0, NCCL_CUDA_ERROR = 1, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 };
enum { NCCL_UINT8 = 1, NCCL_FLOAT = 7, NCCL_BF16 = 9 };
enum { NCCL_SUM = 0 };

struct nccl_comm;
struct nccl_id {
	char byte[128];
};

/* The members of version 2.19.  A library takes those that `size` has. */
struct nccl_config {
	size_t size;
	int magic, version;
	int blocking, cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
	int split_share;
};

/* X(name in the library without "nccl", arguments).  All return a result code. */
#define NCCL_CALLS(X) \
	X(GetVersion, (int *version)) \
	X(GetUniqueId, (struct nccl_id * id)) \
	X(CommInitRankConfig, (struct nccl_comm * *comm, int n, struct nccl_id id, int rank, \
			       struct nccl_config *config)) \
	X(CommGetAsyncError, (struct nccl_comm * comm, int *result)) \
	X(CommAbort, (struct nccl_comm * comm)) \
	X(CommFinalize, (struct nccl_comm * comm)) \
	X(CommDestroy, (struct nccl_comm * comm)) \
	X(AllReduce, (const void *from, void *to, size_t count, int type, int op, \
		      struct nccl_comm *comm, void *stream)) \
	X(AllGather, (const void *from, void *to, size_t count, int type, struct nccl_comm *comm, \
		      void *stream)) \
	X(ReduceScatter, (const void *from, void *to, size_t count, int type, int op, \
			  struct nccl_comm *comm, void *stream)) \
	X(Send, (const void *from, size_t count, int type, int peer, struct nccl_comm *comm, \
		 void *stream)) \
	X(Recv, \
	  (void *to, size_t count, int type, int peer, struct nccl_comm *comm, void *stream)) \
	X(GroupStart, (void)) \
	X(GroupEnd, (void))

/* X(name, arguments): those that return a text. */
#define NCCL_TEXTS(X) \
	X(GetErrorString, (int result)) \
	X(GetLastError, (struct nccl_comm * comm))

#endif
