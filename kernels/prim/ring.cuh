/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of N stages in shared memory: a producer fills them, consumer warp groups empty them.
 *
 * Both sides count steps from 0.  Step i uses stage i % N in round i / N, whose lowest bit is the
 * phase of the stage's barriers.  The stages lie outside: their contents differ by kernel.
 */
#ifndef AR_RING_CUH
#define AR_RING_CUH

#include "kernels/prim/sm90.cuh"

template <int N> struct ring {
	uint64_t full[N], empty[N];

	/* By one thread, before fence_barrier_init().  fills: arrivals that complete a stage,
	 * beside the bytes that TMA counts.  consumers: warp groups that release it, or threads. */
	__device__ __forceinline__ void init(int fills, int consumers)
	{
		for (int i = 0; i < N; i++) {
			mbarrier_init(&full[i], fills);
			mbarrier_init(&empty[i], consumers);
		}
	}

	static __device__ __forceinline__ int stage(int step)
	{
		return step % N;
	}

	/* Wait until the stage of this step is free.  Returns the barrier to fill it through. */
	__device__ __forceinline__ uint64_t *producer_acquire(int step)
	{
		mbarrier_wait(&empty[stage(step)], (step / N & 1) ^ 1);
		return &full[stage(step)];
	}

	/* Wait until the stage of this step is filled. */
	__device__ __forceinline__ void consumer_wait(int step)
	{
		mbarrier_wait(&full[stage(step)], step / N & 1);
	}

	/* By all threads of a warp group, when none reads the stage of this step any more. */
	__device__ __forceinline__ void consumer_release(int step)
	{
		if (threadIdx.x % 128 == 0)
			mbarrier_arrive(&empty[stage(step)]);
	}

	/* By each thread for itself, where init() counts threads.  So racecheck sees the order,
	 * too: for it an arrival ends the reads of that thread alone, not of others that a barrier
	 * joined before. */
	__device__ __forceinline__ void thread_release(int step)
	{
		mbarrier_arrive(&empty[stage(step)]);
	}
};

#endif
