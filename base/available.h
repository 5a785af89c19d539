/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that programs can still take. */
#ifndef AR_AVAILABLE_H
#define AR_AVAILABLE_H

/* Bytes of memory that the machine has left without swapping, an estimate of its kernel; infinite
 * if it does not say. */
double memory_available(void);

#endif
