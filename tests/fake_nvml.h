/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the test and the fake NVML library. */
#ifndef AR_FAKE_NVML_H
#define AR_FAKE_NVML_H

struct fake_nvml {
	int init, find, state; /* results of these calls; 0: success; state: driver and clocks */
	int open;	       /* calls of init without shutdown */
	int slow_at;	       /* the reading that takes 50 ms; 0: none does */
	int reads, fail_at;    /* readings so far; from which on they fail, 0: none does */
	unsigned long long mj, step; /* the counter; every third reading moves it by step */
	unsigned long long tail; /* of work before the first reading: the second step has it, too */
	char uuid[64];		 /* that was looked for */
};

struct fake_nvml *fake_nvml(void);

#endif
