/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/packed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* deflate() leaves its input */
#include <zlib.h>
#include <zstd.h>

enum { GZIP_LEVEL = 6, GZIP_WINDOW = 15 + 16 /* with gzip's header */, GZIP_MEMORY = 8 };

struct packer {
	FILE *to;
	ZSTD_CStream *zstd; /* NULL: by gzip */
	z_stream gzip;
	unsigned char out[1 << 16];
};

static bool packer_put(struct packer *k, size_t n)
{
	return fwrite(k->out, 1, n, k->to) == n;
}

/* Compress in[0 .. n); end: nothing comes after it.  False: errno has the cause. */
static bool by_zstd(struct packer *k, const char *in, size_t n, bool end)
{
	ZSTD_inBuffer from = { in, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer to = { k->out, sizeof k->out, 0 };

		left = ZSTD_compressStream2(k->zstd, &to, &from,
					    end ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left)) {
			errno = ENOMEM; /* the one cause */
			return false;
		}
		if (!packer_put(k, to.pos))
			return false;
	} while (end ? left : from.pos < n);
	return true;
}

static bool by_gzip(struct packer *k, const char *in, size_t n, bool end)
{
	k->gzip.next_in = (const unsigned char *)in;
	k->gzip.avail_in = (uInt)n;
	do {
		k->gzip.next_out = k->out;
		k->gzip.avail_out = sizeof k->out;
		deflate(&k->gzip, end ? Z_FINISH : Z_NO_FLUSH);
		if (!packer_put(k, sizeof k->out - k->gzip.avail_out))
			return false;
	} while (!k->gzip.avail_out);
	return true;
}

static bool pack(struct packer *k, const char *in, size_t n, bool end)
{
	return k->zstd ? by_zstd(k, in, n, end) : by_gzip(k, in, n, end);
}

static ssize_t write_packed(void *cookie, const char *in, size_t n)
{
	return pack(cookie, in, n, false) ? (ssize_t)n : 0;
}

static void *gzip_alloc(void *unused, uInt n, uInt size)
{
	(void)unused;
	return calloc(n, size);
}

static void gzip_free(void *unused, void *p)
{
	(void)unused;
	free(p);
}

static void packer_free(struct packer *k)
{
	if (k)
		k->zstd ? (void)ZSTD_freeCStream(k->zstd) : (void)deflateEnd(&k->gzip);
	free(k);
}

/* NULL: no memory. */
static struct packer *packer_new(FILE *to, bool zstd)
{
	struct packer *k = calloc(1, sizeof *k);
	bool made;

	if (!k)
		return NULL;
	k->to = to;
	k->gzip.zalloc = gzip_alloc;
	k->gzip.zfree = gzip_free;
	if (zstd) {
		k->zstd = ZSTD_createCStream();
		made = k->zstd &&
		       !ZSTD_isError(ZSTD_CCtx_setParameter(k->zstd, ZSTD_c_checksumFlag, 1));
	} else {
		made = deflateInit2(&k->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
				    Z_DEFAULT_STRATEGY) == Z_OK;
	}
	if (made)
		return k;
	packer_free(k);
	return NULL;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

enum ar_status packed_open(struct packed *p, struct outfile *to, struct ar_err *err)
{
	bool zstd = ends_with(to->path, ".zst");

	*p = (struct packed){ .f = to->f, .to = to };
	if (!zstd && !ends_with(to->path, ".gz"))
		return AR_OK;
	p->packer = packer_new(to->f, zstd);
	p->f = p->packer ? fopencookie(p->packer, "w",
				       (cookie_io_functions_t){ .write = write_packed }) :
			   NULL;
	if (p->f)
		return AR_OK;
	packer_free(p->packer);
	*p = (struct packed){ 0 };
	return ar_nomem(err);
}

enum ar_status packed_close(struct packed *p, enum ar_status st, struct ar_err *err)
{
	if (!p->packer)
		return st;
	errno = 0;
	if (!st && (fflush(p->f) || !pack(p->packer, NULL, 0, true)))
		st = ar_fail(err, AR_IO, "%s: cannot write: %s", p->to->path,
			     errno ? strerror(errno) : "earlier output is lost");
	fclose(p->f);
	packer_free(p->packer);
	*p = (struct packed){ 0 };
	return st;
}
