/* SPDX-License-Identifier: Apache-2.0 */
/* Registers of a thread where one warp group issues copies and GROUPS compute.  Every thread has
 * START at first.  Then the one has FEW and the others COMPUTE, of the same total: setmaxnreg. */
#ifndef AR_GROUP_REGISTERS_CUH
#define AR_GROUP_REGISTERS_CUH

template <int GROUPS, int FEW = 24> struct group_registers {
	static constexpr int THREADS = (1 + GROUPS) * 128;
	static constexpr int START = 65536 / THREADS / 8 * 8;
	static constexpr int COPY = FEW;
	static constexpr int COMPUTE = (START * (1 + GROUPS) - COPY) / GROUPS / 8 * 8;
};

#endif
