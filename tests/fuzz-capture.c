/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a capture file.  Opening and reading must succeed or fail cleanly. */
#include "config.h"

#include <sha2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fuzz.h"
#include "traces/capture/capture.h"

const char fuzz_corpus[] = "capture";

static void read_some(struct capture *c)
{
	const struct capture_info *info = capture_info(c);
	int64_t n = info->n_tok < 64 ? info->n_tok : 64;
	size_t values = (size_t)info->q_heads * (size_t)n * (size_t)info->head_dim;
	bf16_t *x = values < 1 << 22 ? malloc(values * sizeof *x) : NULL;
	struct ar_err err;

	for (int i = 0; x && i < info->n_layers && i < 4; i++)
		for (int t = 0; t < 3; t++) {
			capture_read(c, i, (enum capture_tensor)t, 0, n, x, &err);
			capture_read(c, i, (enum capture_tensor)t, info->n_tok - n, n, x, &err);
		}
	free(x);
}

static uint64_t load_le(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | p[bytes];
	return v;
}

/* An .arc file's checksum would stop nearly every input at the door: make it right. */
static void mend_checksum(uint8_t *p, size_t size)
{
	uint64_t head, index;
	SHA2_CTX ctx;

	if (size < 64 || memcmp(p,
				"\x89"
				"ARC",
				4) != 0)
		return;
	head = 16 + load_le(p + 12, 4);
	index = load_le(p + size - 48, 8);
	if (head > size || index > size - 48)
		return;
	SHA256Init(&ctx);
	SHA256Update(&ctx, p, (size_t)head);
	SHA256Update(&ctx, p + index, size - 40 - (size_t)index);
	SHA256Final(p + size - 40, &ctx);
}

static void run_file(const uint8_t *data, size_t size)
{
	char path[HOLD_PATH];
	int fd = hold(data, size, path);
	struct capture *c;
	struct ar_err err = { 0 };

	if (capture_open(&c, path, &err))
		told(&err);
	else
		read_some(c);
	capture_close(c);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *mended = malloc(size + 1);

	must(mended, "no memory");
	log_level = LOG_ERROR;
	memcpy(mended, data, size);
	mend_checksum(mended, size);
	run_file(data, size);
	if (memcmp(mended, data, size) != 0)
		run_file(mended, size);
	free(mended);
	return 0;
}
