/* Fuzz targets.  With fuzz_main.c a target is a test over its corpus; compiled alone with
 * -fsanitize=fuzzer it is libFuzzer's. */
#ifndef AR_TESTS_FUZZ_H
#define AR_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

extern const char fuzz_corpus[];	/* a folder of tests/data/corpus */

/* Aborts where the bytes do harm. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
